// cache: prefill and greedy decoding through the full cache, whose peer is `peers.py decode` on the same
// folder, and with --plan (a file, or `latent` or `headspan`: made up) through the plan's compressed cache,
// whose limit is the full cache: their steps run in turn. The context of a step is --sequence-length tokens
// and the steps before it. In float32, on GPUs in bfloat16; a step ends when its tokens are in host memory,
// so a clock there needs no other wait.
#include <filesystem>
#include <numeric>

#include "app/run/cached_model.h"
#include "app/run/rank_resources.h"
#include "bench/bench.h"
#include "bench/made_up_plan.h"
#include "model/forward/inference.h"
#include "model/weights/weight_loader.h"

namespace headspan {
namespace {

/// As many sequences that decode together.
class Decoding {
 public:
  Decoding(const CachedModel& model, CacheKind kind, std::int64_t sequences)
      : model_(model), cache_(model.make_cache(kind, static_cast<std::size_t>(sequences))) {}

  /// Runs tokens that are known.
  void prefill(const std::vector<std::vector<std::int64_t>>& prompts) {
    next_ = next_tokens(model_.model(), prompts, *cache_);
  }

  double stored_bytes() const { return static_cast<double>(cache_->bytes().stored); }

  void step() {
    std::vector<std::vector<std::int64_t>> fresh;
    for (const std::int64_t token : next_) fresh.push_back({token});
    next_ = next_tokens(model_.model(), fresh, *cache_);
  }

 private:
  const CachedModel& model_;
  std::unique_ptr<KvCache> cache_;
  std::vector<std::int64_t> next_;
};

std::vector<std::vector<std::int64_t>> make_prompts(const BenchOptions& options, std::int64_t vocab_size) {
  std::vector<std::vector<std::int64_t>> prompts;
  for (std::int64_t s = 0, token = 0; s < options.batch; ++s) {
    prompts.emplace_back();
    for (std::int64_t t = 0; t < options.sequence_length; ++t)
      prompts.back().push_back(token++ * 7919 % vocab_size);
  }
  return prompts;
}

/// What a program does with its first prompt and its first step alone.
void warm_up(const CachedModel& model, CacheKind kind, const std::vector<std::int64_t>& prompt) {
  Decoding first(model, kind, 1);
  first.prefill({prompt});
  first.step();
}

/// Returns GB that a step reads once: the matrices that multiply, and what the cache stores.
double read_of_step(const ModelInput& input, const Decoding& decoding) {
  const ModelConfig& config = input.config;
  const Dtype stored = weight_dtype(input.dtype, config, input.checkpoint ? &*input.checkpoint : nullptr);
  double bytes = weight_bytes(config, {config.layers, true}, 1, stored);
  if (!config.tie_word_embeddings)  // of the embedding it reads a few rows
    bytes -= static_cast<double>(config.vocab_size * config.hidden_size) *
             static_cast<double>(c10::elementSize(scalar_type(stored)));
  return 1e-9 * (bytes + decoding.stored_bytes());
}

std::string name_of(const CompressionPlan& plan) {
  char share[16];
  std::snprintf(share, sizeof share, "%.2f", plan.stored_bytes() / plan.full_bytes());
  return word_of(algorithm_words(), plan.algorithm) + " at " + share;
}

}  // namespace

bool bench_cache(const BenchOptions& given, const Comm& comm) {
  Job job;
  job.model.path = given.folder;
  job.run.device = value_of(device_words(), given.device);
  job.model.dtype = job.run.device == ComputeDevice::cuda ? Dtype::bfloat16 : Dtype::float32;
  const std::optional<int> gpu = choose_gpu(job.run, comm);
  const bool random = !has_weights(given.folder);
  job.model.init = {random ? WeightSource::random : WeightSource::pretrained};
  const ModelInput input = open_model(job.model, given.folder, random, true);
  BenchOptions options = with_shape_of(input.config, given);
  options.precision = dtype_name(*job.model.dtype);
  options.tokens = options.batch * options.sequence_length;
  std::optional<CompressionPlan> plan;
  if (std::filesystem::exists(options.plan))
    plan = read_plan(options.plan);
  else if (!options.plan.empty())
    plan = made_up_plan(input.config, options.plan);
  const ProcessLayout processes(comm, 1, 1, {}, gpu);
  const Transformer model = load_model(job.model, input, true, processes, Log(false), options.folder);
  const CachedModel cached = plan ? CachedModel(model, input, processes, *plan, {options.plan})
                                  : CachedModel(model, input, processes);
  const auto prompts = make_prompts(options, input.config.vocab_size);
  const auto tokens = static_cast<double>(options.tokens * comm.size());
  const auto sequences = static_cast<double>(options.batch * comm.size());
  const std::string shape =
      ", context " + std::to_string(options.sequence_length) + ", batch " + std::to_string(options.batch);
  warm_up(cached, CacheKind::full, prompts.front());
  Decoding full(cached, CacheKind::full, options.batch);
  const double prefill = seconds_of(comm, [&] { full.prefill(prompts); });
  const auto use = [&](const Decoding& decoding, double seconds) {
    return Use{gpu ? Resource::none : Resource::read, read_of_step(input, decoding) * comm.size() / seconds};
  };
  if (!plan) {
    const double decode = median_seconds(comm, options.repeats, [&] { full.step(); });
    return report(options, comm, {"prefill" + shape, "tokens/s", tokens / prefill}) &&
           report(options, comm,
                  {"decode" + shape, "tokens/s", sequences / decode, kNone, kNone, kNone, use(full, decode)});
  }
  warm_up(cached, CacheKind::compressed, prompts.front());
  Decoding compressed(cached, CacheKind::compressed, options.batch);
  const double own_prefill = seconds_of(comm, [&] { compressed.prefill(prompts); });
  const TurnTimes decode = time_in_turn(
      comm, options.repeats, [&] { full.step(); }, [&] { compressed.step(); });
  const double required = options.sequence_length < 4096 ? (gpu ? 0.95 : 1) : gpu ? 1.2 : 1.3;
  bool met = report(options, comm,
                    {"decode with " + name_of(*plan) + ", against the full cache" + shape, "tokens/s",
                     sequences / decode.routine, sequences / decode.limit, decode.speed, required,
                     use(compressed, decode.routine)});
  const double batches = full.stored_bytes() / compressed.stored_bytes();
  const double most = plan->algorithm == CompressionAlgorithm::latent ? 3.5 : 1.9;
  met = report(options, comm,
               {"largest batch with " + name_of(*plan) + ", in the memory of one full cache" + shape,
                "caches", batches, 1, batches, gpu ? most : kNone}) &&
        met;
  report(options, comm,
         {"prefill with " + name_of(*plan) + ", against the full cache" + shape, "tokens/s",
          tokens / own_prefill, tokens / prefill, prefill / own_prefill});
  return met;
}

}  // namespace headspan
