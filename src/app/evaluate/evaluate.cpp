#include "app/evaluate/evaluate.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "app/evaluate/answer_requests.h"
#include "app/evaluate/cache_speed.h"
#include "app/evaluate/score_texts.h"
#include "app/job/job_file.h"
#include "app/run/cached_model.h"
#include "app/run/output_lock.h"
#include "app/run/rank_resources.h"
#include "app/run/run_clock.h"
#include "app/run/write_target.h"
#include "base/clock.h"
#include "base/printable.h"
#include "base/provenance.h"
#include "base/sha256.h"
#include "dist/comm/agreement.h"
#include "io/checkpoint/content_digest.h"
#include "io/outputs/lock_file.h"
#include "io/outputs/publish.h"
#include "model/weights/weight_loader.h"

namespace headspan {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

struct Text {
  std::string name;  ///< the file's, without folder and last extension
  Sample sample;
};

/// Everything that is read before the weights.
struct Prepared {
  ModelInput input;
  std::optional<CompressionPlan> plan;
  std::vector<Text> texts;
  std::vector<ScoredRequest> scored;
  std::vector<GenerationRequest> generated;
};

Text read_text(const Job& job, const std::string& path, const ModelInput& input) {
  Text text;
  text.name = fs::path(path).stem().string();
  Job::Tokens rule = job.tokens;
  rule.path = path;
  rule.heldout = 0;
  rule.skip_first = 0;
  text.sample = take_sample(rule, input.config, input.config_path, job.model.name);
  return text;
}

/// Throws InputError where what is written would replace what is read, or each other. Local.
void check_targets(const Job& job) {
  const std::string &answers = job.evaluate.answers, &summary = job.evaluate.summary;
  const std::vector<std::string> inputs = input_files(job);
  if (!summary.empty()) check_target({"evaluate.summary", summary, summary}, inputs);
  if (answers.empty()) return;
  const auto place = [](const std::string& path) { return fs::weakly_canonical(fs::absolute(path)); };
  for (const char* suffix : {"", ".lock", ".part", ".part.tmp"}) {
    check_target({"evaluate.answers", answers, answers + suffix}, inputs);
    if (!summary.empty() && place(answers + suffix) == place(summary))
      throw InputError("", "evaluate.summary", summary, "is the file for the answers too",
                       "choose another place");
  }
}

/// Throws InputError for everything that is wrong with the job but the values of the weights. Local.
Prepared prepare(const Job& job) {
  Prepared prepared{open_model(job.model, job.model.path, false, true), {}, {}, {}, {}};
  const Job::Evaluate& rule = job.evaluate;
  if (!rule.plan.empty() && rule.cache != CacheKind::full) {
    prepared.plan = read_plan(rule.plan);
    if (prepared.plan->config_sha256 != prepared.input.config_sha256)
      throw InputError(rule.plan, "config_sha256", prepared.plan->config_sha256.substr(0, 12),
                       "is not that of " + prepared.input.config_path + " (" +
                           prepared.input.config_sha256.substr(0, 12) + ")",
                       "give a plan that was calibrated on this model");
  }
  for (const std::string& path : rule.texts) {
    prepared.texts.push_back(read_text(job, path, prepared.input));
    for (std::size_t t = 0; t + 1 < prepared.texts.size(); ++t)
      if (prepared.texts[t].name == prepared.texts.back().name)
        throw InputError("", "evaluate.texts", path, "has the name of another text in the summary",
                         "give files of different names");
  }
  const ModelConfig& config = prepared.input.config;
  if (!rule.requests.empty())
    prepared.scored = read_scored_requests(rule.requests, config.vocab_size, config.max_positions);
  if (!rule.generate.empty())
    prepared.generated = read_generation_requests(rule.generate, config.vocab_size, config.max_positions);
  return prepared;
}

/// Equal for runs that answer the same requests alike, with the weights in these very files.
std::string identity(const Job& job, const Prepared& prepared, const std::string& weights) {
  const Job::Evaluate& rule = job.evaluate;
  std::string text = to_ini(job, Command::evaluate) + prepared.input.config_sha256 + weights +
                     change_times(prepared.input.checkpoint->files());
  for (const std::string& path : {prepared.plan ? rule.plan : "", rule.requests, rule.generate})
    if (!path.empty()) text += sha256_file(path);
  return sha256_hex(text);
}

/// The digests of the model's weights and of those that the plan was made for; tells where these are others.
Json compare_weights(const Job& job, const Prepared& prepared, const std::string& weights, const Log& log) {
  Json found{{"digest", weights}, {"plan", nullptr}, {"same", nullptr}};
  if (!prepared.plan || prepared.plan->algorithm == CompressionAlgorithm::quantise)
    return found;  // has no maps
  const std::string& planned = prepared.plan->weights_digest;
  const bool same = planned == weights;
  if (planned.empty()) {
    log.notice(job.evaluate.plan + " does not say for which weights it was made");
    return found;
  }
  if (!same)
    log.warning(job.evaluate.plan + " was made for other weights (" + planned.substr(0, 12) +
                ") than those of " + job.model.path + " (" + weights.substr(0, 12) + ")");
  found["plan"] = planned;
  found["same"] = same;
  return found;
}

Json number_or_null(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

Json score_texts(const Job& job, const Prepared& prepared, const CachedModel& model, const Log& log) {
  Json texts = Json::object();
  const CacheKind kind = job.evaluate.cache;
  for (const Text& text : prepared.texts) {
    Progress progress(log, "score", "tokens", text.sample.total(), {{"text", text.name}});
    std::int64_t longest = 0;
    for (const Sequence& sequence : text.sample.sequences) longest = std::max(longest, sequence.length);
    const TextScore score =
        score_text(model, kind, job.evaluate.reference && kind != CacheKind::full, text.name, text.sample,
                   batch_sequences(job.evaluate.batch, longest), progress);
    if (score.tokens == 0)
      log.notice(text.name +
                 ": loss and KL are null: its sequences have one token each, which nothing predicts");
    else if (std::isnan(score.loss_se))
      log.notice(text.name +
                 ": standard errors are null: they are over sequences, and one alone has tokens to predict");
    texts[text.name] = {
        {"sequences", text.sample.sequences.size()},
        {"tokens", score.tokens},
        {"loss", number_or_null(score.loss)},
        {"loss_se", number_or_null(score.loss_se)},
        {"perplexity", number_or_null(std::exp(score.loss))},
        {"bits_per_byte", number_or_null(score.loss / std::log(2.0) * text.sample.tokens_per_byte)},
        {"full_loss", number_or_null(score.full_loss)},
        {"dloss", number_or_null(score.dloss)},
        {"dloss_se", number_or_null(score.dloss_se)},
        {"kl", number_or_null(score.kl)},
        {"kl_se", number_or_null(score.kl_se)}};
    if (!text.sample.mismatch.empty()) texts[text.name]["tokens_mismatch"] = text.sample.mismatch;
  }
  return texts;
}

/// Prompts from the first text, or from the longest contexts of the requests.
std::vector<std::vector<std::int64_t>> speed_prompts(const Job& job, const Prepared& prepared) {
  std::vector<std::vector<std::int64_t>> prompts;
  if (!prepared.texts.empty()) prompts = prepared.texts.front().sample.tokens;
  if (prompts.empty())
    for (const ScoredRequest& request : prepared.scored) prompts.push_back(request.context);
  if (prompts.empty())
    for (const GenerationRequest& request : prepared.generated) prompts.push_back(request.context);
  std::stable_sort(prompts.begin(), prompts.end(),
                   [](const auto& a, const auto& b) { return a.size() > b.size(); });
  const std::int64_t batch =
      prompts.empty()
          ? 0
          : batch_sequences(job.evaluate.batch, static_cast<std::int64_t>(prompts.front().size()));
  if (static_cast<std::int64_t>(prompts.size()) > batch) prompts.resize(static_cast<std::size_t>(batch));
  return prompts;
}

/// Memory of a rank that the weights leave.
double free_memory(const Prepared& prepared, int tensor_parallel, double memory) {
  const ModelConfig& config = prepared.input.config;
  return memory - weight_bytes(config, {config.layers, true}, tensor_parallel,
                               weight_dtype(prepared.input.dtype, config, &*prepared.input.checkpoint));
}

/// Of the largest batch of texts, requests or generations, if all its sequences are as long as the longest.
double largest_tokens(const Job& job, const Prepared& prepared) {
  std::vector<std::vector<std::int64_t>> lengths(2);
  for (const ScoredRequest& request : prepared.scored)
    lengths[0].push_back(static_cast<std::int64_t>(request.context.size() + request.continuation.size()));
  for (const GenerationRequest& request : prepared.generated)
    lengths[1].push_back(static_cast<std::int64_t>(request.context.size()) + request.max_new_tokens);
  for (const Text& text : prepared.texts) {
    lengths.emplace_back();
    for (const Sequence& sequence : text.sample.sequences) lengths.back().push_back(sequence.length);
  }
  std::int64_t tokens = 0;
  for (const auto& own : lengths) {
    const std::int64_t longest = own.empty() ? 0 : *std::max_element(own.begin(), own.end()),
                       count = static_cast<std::int64_t>(own.size());
    tokens = std::max(tokens, std::min(count, batch_sequences(job.evaluate.batch, longest)) * longest);
  }
  return static_cast<double>(tokens);
}

/// Tells where blocks are dealt out, or would be but for the GPUs.
SharedBlocks choose_shared_blocks(const Job& job, const Prepared& prepared, const ProcessLayout& team,
                                  double memory, const Log& log) {
  const int tensor_parallel = team.tensor().size();
  if (!prepared.plan || job.evaluate.cache != CacheKind::compressed) return SharedBlocks::replicated;
  const SharedBlocks shared =
      choose_shared_blocks(*prepared.plan, prepared.input.dtype, tensor_parallel,
                           largest_tokens(job, prepared), free_memory(prepared, tensor_parallel, memory));
  if (shared == SharedBlocks::sharded)
    log.notice("the stored blocks of a batch on each of " + std::to_string(tensor_parallel) +
               " tensor-parallel ranks would fill more than half of their free memory: " +
               (team.gpu() ? "on GPUs each has all of them" : "they are dealt out"));
  return team.gpu() ? SharedBlocks::replicated : shared;
}

/// Adds bytes, speeds and the largest batch to the summary.
void measure(const Job& job, const Prepared& prepared, const CachedModel& model, double memory,
             Json& summary) {
  constexpr std::int64_t kSteps = 16;
  const std::vector<std::vector<std::int64_t>> prompts = speed_prompts(job, prepared);
  if (prompts.empty()) return;
  const CacheKind kind = job.evaluate.cache;
  const std::int64_t exact = prepared.plan ? prepared.plan->exact_first : 0;
  const CacheSpeed own = measure_speed(model, kind, prompts, kSteps, exact);
  const bool beside = job.evaluate.reference && kind != CacheKind::full;
  const CacheSpeed full = beside ? measure_speed(model, CacheKind::full, prompts, kSteps, 0) : own;
  const bool known = beside || kind == CacheKind::full;
  summary["bytes_per_token"] = {{"full", number_or_null(known ? full.stored_bytes : NAN)},
                                {"stored", own.stored_bytes},
                                {"exact", own.exact_bytes}};
  summary["tokens_per_second"] = {{"prefill", own.prefill},
                                  {"decode", own.decode},
                                  {"full_prefill", number_or_null(known ? full.prefill : NAN)},
                                  {"full_decode", number_or_null(known ? full.decode : NAN)}};
  const int ranks = model.team().tensor().size();
  const double left = free_memory(prepared, ranks, memory),
               maps = prepared.plan ? 2 * prepared.plan->map_bytes() : 0;
  const auto largest = [&](const CacheSpeed& speed, double more) {
    const auto length = static_cast<double>(job.tokens.sequence_length);
    const double sequence = speed.stored_bytes * length + speed.exact_bytes * static_cast<double>(exact);
    return std::max(0.0, std::floor(ranks * (left - more) / sequence));
  };
  summary["largest_batch"] = largest(own, maps);
  if (known) summary["full_largest_batch"] = largest(full, 0);
  summary["memory_gib"] = memory / (1 << 30);
  summary["sequence_length"] = job.tokens.sequence_length;
}

void print(const Json& summary) {
  for (const auto& [name, text] : summary["texts"].items())
    std::printf("text=%s tokens=%s loss=%s full_loss=%s kl=%s kl_se=%s\n", escaped(name).c_str(),
                text["tokens"].dump().c_str(), text["loss"].dump().c_str(), text["full_loss"].dump().c_str(),
                text["kl"].dump().c_str(), text["kl_se"].dump().c_str());
}

/// Returns the exit code: 3 where the next run has fewer requests to answer than this one had.
int tell_stopped(const Job& job, const std::optional<AnswerFile>& answers, const Comm& world, double start) {
  const bool goes_on = answers && answers->kept_since();
  if (!world.is_root()) return goes_on ? 3 : 1;
  if (!goes_on) {
    std::fputs(
        "headspan: stopped by a signal: nothing of this run is kept; the same command begins where this one "
        "did\n",
        stderr);
    return 1;
  }
  std::fprintf(
      stderr,
      "headspan: stopped by a signal: the answers so far are in %s.part; the same command goes on from "
      "them%s\n",
      escaped(job.evaluate.answers).c_str(), job.evaluate.texts.empty() ? "" : " and scores the texts anew");
  std::printf("status=stopped units=1 skipped=0 seconds=%.1f\n", steady_seconds() - start);
  return 3;
}

}  // namespace

int evaluate(const Job& job, const Comm& world) {
  const double start = steady_seconds();
  const Log log(world.is_root());
  const std::optional<int> gpu = choose_gpu(job, world);
  start_threads(world);
  const double memory = gpu ? gpu_memory_of_rank(job, world, *gpu) : memory_of_rank(job, world);
  Prepared prepared;
  int tensor_parallel = 1;
  agree(world, [&] {
    check_file_name(job.evaluate.summary, "evaluate.summary", job.evaluate.summary);
    check_file_name(job.evaluate.answers, "evaluate.answers", job.evaluate.answers);
    check_targets(job);
    prepared = prepare(job);
    tensor_parallel =
        choose_tensor_parallel(job, prepared.input.config, prepared.input.dtype, world.size(), memory);
  });
  std::string weights, answered;
  agree(world, [&] {
    if (!world.is_root()) return;
    weights = weights_digest(*prepared.input.checkpoint);
    answered = identity(job, prepared, weights);
  });
  if (prepared.plan) check_done(world, {job.evaluate.plan}, log);
  const std::string id = world.broadcast(job_id(), 0);
  std::unique_ptr<LockFile> lock;  // on the root
  try {
    if (!job.evaluate.answers.empty()) lock = take_lock(job.evaluate.answers, id, world, log);
  } catch (const Stopped&) {
    return tell_stopped(job, std::nullopt, world, start);
  }
  for (const Text& text : prepared.texts) tell(text.sample, log);
  const ProcessLayout team(world, 1, tensor_parallel, std::nullopt, gpu);
  const Transformer transformer = load_model(job.model, prepared.input, true, team, log, job.model.path);
  std::optional<CachedModel> model;
  agree(world, [&] {
    model.emplace(transformer, prepared.input, prepared.plan, job.evaluate.plan, job.evaluate.exact_recent,
                  team, choose_shared_blocks(job, prepared, team, memory, log));
  });
  Json summary{{"plan", job.evaluate.plan}, {"cache", word_of(cache_words(), job.evaluate.cache)}};
  summary["weights"] = compare_weights(job, prepared, weights, log);
  const CacheKind kind = job.evaluate.cache;
  const std::size_t scored = prepared.scored.size();
  std::optional<AnswerFile> answers;
  try {
    summary["texts"] = score_texts(job, prepared, *model, log);
    answers.emplace(team.group(), job.evaluate.answers, answered, scored + prepared.generated.size(), log);
    answer(*model, kind, prepared.scored, job.evaluate.batch, 0, *answers);
    answer(*model, kind, prepared.generated, job.evaluate.batch, scored, *answers);
  } catch (const Stopped&) {
    return tell_stopped(job, answers, world, start);
  }
  measure(job, prepared, *model, memory, summary);
  agree(world, [&] {
    if (lock) lock->check();
  });
  answers->publish();
  agree(world, [&] {
    if (!world.is_root()) return;
    if (!job.evaluate.summary.empty()) publish_text(job.evaluate.summary, summary.dump(1) + "\n");
  });
  if (!world.is_root()) return 0;
  print(summary);
  std::printf("status=done units=1 skipped=0 seconds=%.1f\n", steady_seconds() - start);
  return 0;
}

}  // namespace headspan
