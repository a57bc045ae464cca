#include "app/evaluate/evaluate.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "app/archive/recoder.h"
#include "app/evaluate/cache_speed.h"
#include "app/evaluate/evaluate_input.h"
#include "app/run/cached_model.h"
#include "app/run/input_watch.h"
#include "app/run/output_lock.h"
#include "app/run/rank_resources.h"
#include "app/run/run_clock.h"
#include "app/run/write_target.h"
#include "base/checked.h"
#include "base/clock.h"
#include "base/printable.h"
#include "base/provenance.h"
#include "dist/comm/agreement.h"
#include "io/outputs/lock_file.h"
#include "io/outputs/publish.h"
#include "model/weights/weight_loader.h"

namespace headspan {
namespace {

using Json = nlohmann::ordered_json;

/// Throws InputError if an output would replace an input or the other output. Local.
void check_targets(const Job& job) {
  const std::string &answers = job.evaluate.answers, &summary = job.evaluate.summary;
  check_file_name(summary, "evaluate.summary", summary);
  check_file_name(answers, "evaluate.answers", answers);
  const std::vector<std::string> inputs = input_files(job);
  if (!summary.empty()) check_target({"evaluate.summary", summary, summary}, inputs);
  if (answers.empty()) return;
  for (const char* suffix : {"", ".lock", ".part", ".part.tmp"}) {
    check_target({"evaluate.answers", answers, answers + suffix}, inputs);
    if (!summary.empty() && have_one_name(answers + suffix, summary))
      throw InputError("", "evaluate.summary", summary, "is the file for the answers too",
                       "choose another place");
  }
}

/// Returns the digests of the model's weights and of those that the plan or codec was made for; logs a
/// difference.
Json compare_weights(const std::string& model, const EvaluateInput& prepared, const Log& log) {
  const std::string& weights = prepared.weights_digest;
  Json found{{"digest", weights}, {"plan", nullptr}, {"same", nullptr}};
  if (!prepared.source_weights) return found;
  const std::string& planned = *prepared.source_weights;
  if (planned.empty()) {
    log.notice(prepared.source + " does not say for which weights it was made");
    return found;
  }
  if (planned != weights)
    log.warning(prepared.source + " was made for other weights (" + planned.substr(0, 12) +
                ") than those of " + model + " (" + weights.substr(0, 12) + ")");
  found["plan"] = planned;
  found["same"] = planned == weights;
  return found;
}

Json number_or_null(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

/// Returns the scores of all texts by name. Collective over the group.
Json score_texts(const Job::Evaluate& rule, const EvaluateInput& prepared, const CachedModel& model,
                 const Log& log) {
  Json texts = Json::object();
  for (const Text& text : prepared.texts) {
    const TextScore score = score_text(model, rule, text, log);
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

/// Returns a batch of the longest prompts: sequences of the first text, or else contexts of the requests.
std::vector<std::vector<std::int64_t>> speed_prompts(const std::optional<std::int64_t>& asked,
                                                     const EvaluateInput& prepared) {
  std::vector<std::vector<std::int64_t>> prompts;
  if (!prepared.texts.empty()) prompts = prepared.texts.front().sample.tokens;
  if (prompts.empty())
    for (const ScoredRequest& request : prepared.scored) prompts.push_back(request.context);
  if (prompts.empty())
    for (const GenerationRequest& request : prepared.generated) prompts.push_back(request.context);
  std::stable_sort(prompts.begin(), prompts.end(),
                   [](const auto& a, const auto& b) { return a.size() > b.size(); });
  if (prompts.empty()) return prompts;
  const std::int64_t batch = batch_sequences(asked, static_cast<std::int64_t>(prompts.front().size()));
  prompts.resize(std::min(prompts.size(), to_size(batch)));
  return prompts;
}

/// Returns the bytes of a rank's memory that the weights leave free.
double free_memory(const EvaluateInput& prepared, int tensor_parallel, double memory) {
  const ModelConfig& config = prepared.input.config;
  return memory - weight_bytes(config, {config.layers, true}, tensor_parallel,
                               weight_dtype(prepared.input.dtype, config, &*prepared.input.checkpoint));
}

/// Returns the tokens of the largest batch of texts, requests or generations, each sequence counted as long
/// as the longest.
double largest_batch_tokens(const std::optional<std::int64_t>& asked, const EvaluateInput& prepared) {
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
  for (const auto& list : lengths) {
    const std::int64_t longest = list.empty() ? 0 : *std::max_element(list.begin(), list.end()),
                       count = static_cast<std::int64_t>(list.size());
    tokens = std::max(tokens, std::min(count, batch_sequences(asked, longest)) * longest);
  }
  return static_cast<double>(tokens);
}

/// Returns whether tensor-parallel ranks replicate or shard the blocks of a cache that they share. GPUs
/// always replicate them. Logs a notice if memory asks for sharding. There must be a plan.
SharedBlocks choose_shared_blocks(const Job::Evaluate& rule, const EvaluateInput& prepared,
                                  const ProcessLayout& processes, double memory, const Log& log) {
  const int tensor_parallel = processes.tensor().size();
  if (rule.cache != CacheKind::compressed) return SharedBlocks::replicated;
  const SharedBlocks shared = choose_shared_blocks(*prepared.plan, prepared.input.dtype, tensor_parallel,
                                                   largest_batch_tokens(rule.batch, prepared),
                                                   free_memory(prepared, tensor_parallel, memory));
  if (shared == SharedBlocks::sharded)
    log.notice("the stored blocks of a batch on each of " + std::to_string(tensor_parallel) +
               " tensor-parallel ranks would fill more than half of their free memory: " +
               (processes.gpu() ? "on GPUs each has all of them" : "they are dealt out"));
  return processes.gpu() ? SharedBlocks::replicated : shared;
}

/// Adds bytes, speeds and the largest batch to the summary. Collective over the group.
void measure(const Job::Evaluate& rule, std::int64_t sequence_length, const EvaluateInput& prepared,
             const CachedModel& model, double memory, Json& summary) {
  constexpr std::int64_t kSteps = 16;
  const std::vector<std::vector<std::int64_t>> prompts = speed_prompts(rule.batch, prepared);
  if (prompts.empty()) return;
  const CacheKind kind = rule.cache;
  const std::int64_t exact = prepared.plan ? prepared.plan->exact_first : 0;
  const CacheSpeed cache = measure_speed(model, kind, prompts, kSteps, exact);
  const bool measure_full = rule.reference && kind != CacheKind::full;
  const CacheSpeed full = measure_full ? measure_speed(model, CacheKind::full, prompts, kSteps, 0) : cache;
  const bool known = measure_full || kind == CacheKind::full;
  summary["bytes_per_token"] = {{"full", number_or_null(known ? full.stored_bytes : NAN)},
                                {"stored", cache.stored_bytes},
                                {"exact", cache.exact_bytes}};
  summary["tokens_per_second"] = {{"prefill", cache.prefill},
                                  {"decode", cache.decode},
                                  {"full_prefill", number_or_null(known ? full.prefill : NAN)},
                                  {"full_decode", number_or_null(known ? full.decode : NAN)}};
  const int ranks = model.processes().tensor().size();
  const double free = free_memory(prepared, ranks, memory);
  const std::int64_t waiting = prepared.plan ? prepared.plan->group_tokens() - 1 : 0;  // for their group
  const auto largest_batch = [&](const CacheSpeed& speed, double map_bytes) {
    const double sequence_bytes =
        speed.stored_bytes * static_cast<double>(sequence_length) +
        speed.exact_bytes * static_cast<double>(exact + rule.exact_recent + waiting);
    return std::max(0.0, std::floor(ranks * (free - map_bytes) / sequence_bytes));
  };
  summary["largest_batch"] = largest_batch(cache, prepared.plan ? 2 * prepared.plan->map_bytes() : 0);
  if (known) summary["full_largest_batch"] = largest_batch(full, 0);
  summary["memory_gib"] = memory / (1 << 30);
  summary["sequence_length"] = sequence_length;
}

void print(const Json& summary) {
  if (summary.contains("archive"))
    std::printf("codec=%s step=%s bits=%s\n", escaped(summary["archive"]["codec"].get<std::string>()).c_str(),
                summary["archive"]["step"].dump().c_str(), summary["archive"]["bits"].dump().c_str());
  for (const auto& [name, text] : summary["texts"].items())
    std::printf("text=%s tokens=%s loss=%s full_loss=%s kl=%s kl_se=%s\n", escaped(name).c_str(),
                text["tokens"].dump().c_str(), text["loss"].dump().c_str(), text["full_loss"].dump().c_str(),
                text["kl"].dump().c_str(), text["kl_se"].dump().c_str());
}

/// Prints why the run stopped and returns its exit code: 3 if the next run has fewer requests to answer than
/// this one had, else 1.
int tell_stopped(const Job::Evaluate& rule, const std::optional<AnswerFile>& answers, const Comm& world,
                 double start) {
  const bool has_new = answers && answers->has_new_answers();
  if (!world.is_root()) return has_new ? 3 : 1;
  if (!has_new) {
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
      escaped(rule.answers).c_str(), rule.texts.empty() ? "" : " and scores the texts anew");
  std::printf("status=stopped units=1 skipped=0 seconds=%.1f\n", steady_seconds() - start);
  return 3;
}

/// Returns what the prompts took as archives. Collective over the group.
Json archive_of(const std::string& codec, const Recoder& recoder, const ProcessLayout& processes) {
  std::vector<double> sums{recoder.coded_bytes(), recoder.coded_numbers()};
  processes.data().sum(sums.data(), 2);
  const ArchiveAlgorithm algorithm =
      recoder.codec().has_runs() ? ArchiveAlgorithm::kvtc : ArchiveAlgorithm::headspan;
  return {{"codec", codec},
          {"algorithm", word_of(archive_algorithm_words(), algorithm)},
          {"step", recoder.step()},
          {"bits", number_or_null(8 * sums[0] / sums[1])},
          {"exact_first", recoder.codec().exact_first}};
}

/// Loads the model, scores the texts, answers the requests and measures the cache; returns the summary.
/// Throws Stopped. Collective over the group.
Json run(const Job& job, const EvaluateInput& prepared, const InputWatch& inputs,
         const ProcessLayout& processes, double memory, const Log& log, std::optional<AnswerFile>& answers) {
  const Job::Evaluate& rule = job.evaluate;
  const Transformer transformer = load_model(job.model, prepared.input, true, processes, log, job.model.path);
  std::optional<Recoder> recoder;
  std::optional<CachedModel> model;
  agree(processes.group(), [&] {
    const std::vector<std::int64_t> ends = document_ends(job.tokens, prepared.input.config);
    if (prepared.codec) {
      recoder.emplace(prepared.codec->codec, prepared.codec->step, ends);
      model.emplace(transformer, prepared.input, processes,
                    [&](const auto& ids, auto& k, auto& v) { recoder->recode(ids, k, v); });
    } else if (prepared.plan) {
      model.emplace(transformer, prepared.input, processes, *prepared.plan,
                    CompressedCacheOptions{rule.plan, rule.exact_recent,
                                           choose_shared_blocks(rule, prepared, processes, memory, log), ends,
                                           rule.prefill == Prefill::exact});
    } else {
      model.emplace(transformer, prepared.input, processes);
    }
  });
  Json summary{
      {"plan", rule.plan},
      {"cache", word_of(cache_words(), rule.cache)},
      {"exact_recent", rule.exact_recent},
      {"prefill", word_of(prefill_words(), model->exact_prefill() ? Prefill::exact : Prefill::compressed)}};
  summary["weights"] = compare_weights(job.model.path, prepared, log);
  summary["texts"] = score_texts(rule, prepared, *model, log);
  agree(processes.group(), [&] { inputs.check(); });  // answers are kept, also if the run fails
  const std::size_t scored = prepared.scored.size();
  answers.emplace(processes.group(), rule.answers, prepared.identity, scored + prepared.generated.size(),
                  log);
  answer(*model, rule.cache, prepared.scored, rule.batch, 0, *answers);
  answer(*model, rule.cache, prepared.generated, rule.batch, scored, *answers);
  if (recoder)
    summary["archive"] = archive_of(job.archive.codec, *recoder, processes);
  else
    measure(rule, job.tokens.sequence_length, prepared, *model, memory, summary);
  return summary;
}

}  // namespace

int evaluate(const Job& job, const Comm& world, const Log& log) {
  const double start = steady_seconds();
  const InputWatch inputs(job);
  const std::optional<int> gpu = choose_gpu(job.run, world);
  start_threads(world, log);
  const double memory = gpu ? gpu_memory_of_rank(job.run, world, *gpu) : memory_of_rank(job.run, world);
  EvaluateInput prepared;
  int tensor_parallel = 1;
  agree(world, [&] {
    check_targets(job);
    prepared = read_evaluate_input(job);
    check_one_group(job.run, world.size());
    const ModelInput& input = prepared.input;
    tensor_parallel = choose_tensor_parallel(
        job.run, job.model, {{{job.model.path, input.config}}, input.dtype, true}, world.size(), memory);
  });
  agree(world, [&] {
    if (world.is_root()) set_digests(job, prepared);
  });
  if (!prepared.source.empty()) check_done(world, {prepared.source}, log);
  const std::string id = world.broadcast(job_id(), 0);
  std::unique_ptr<LockFile> lock;
  std::optional<ProcessLayout> processes;
  std::optional<AnswerFile> answers;
  Json summary;
  try {
    if (!job.evaluate.answers.empty()) lock = take_lock(job.evaluate.answers, id, world, log);
    for (const Text& text : prepared.texts) tell(text.sample, log);
    processes.emplace(world, 1, tensor_parallel, std::nullopt, gpu);
    summary = run(job, prepared, inputs, *processes, memory, log, answers);
  } catch (const Stopped&) {
    return tell_stopped(job.evaluate, answers, world, start);
  }
  agree(world, [&] {
    if (lock) lock->check();
    inputs.check();
  });
  answers->publish();
  agree(world, [&] {
    if (world.is_root() && !job.evaluate.summary.empty())
      publish_text(job.evaluate.summary, summary.dump(1) + "\n");
  });
  if (!world.is_root()) return 0;
  print(summary);
  std::printf("status=done units=1 skipped=0 seconds=%.1f\n", steady_seconds() - start);
  return 0;
}

}  // namespace headspan
