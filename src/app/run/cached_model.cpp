#include "app/run/cached_model.h"

#include "model/cache/paged_cache.h"
#include "model/device_cache/device_cache.h"

namespace headspan {

SharedBlocks choose_shared_blocks(const CompressionPlan& plan, Dtype plain, int ranks, double tokens,
                                  double memory) {
  if (ranks == 1 || rounds_columns(plan.algorithm)) return SharedBlocks::replicated;
  std::int64_t record = 0;
  std::size_t numbers = 0;
  for (const auto& [stream, blocks] : plan.streams)
    for (const PlannedBlock& block : blocks) {
      record += RecordFormat(block.bands, plain, block.weights).bytes();
      numbers += block.reconstruction.size() + block.map.size() + block.bias.size();
    }
  const double stored = static_cast<double>(record) * tokens,
               maps = static_cast<double>(numbers) * (plain == Dtype::float64 ? 8 : 4);
  const double replicated = stored + maps / ranks, sharded = stored / ranks + maps;
  return replicated > memory / 2 && sharded < replicated ? SharedBlocks::sharded : SharedBlocks::replicated;
}

CachedModel::CachedModel(const Transformer& model, const ModelInput& input, const ProcessLayout& processes)
    : model_(model),
      processes_(processes),
      plain_(input.dtype),
      compute_(input.dtype == Dtype::float64 ? Dtype::float64 : Dtype::float32),
      full_(make_plan(full_plan(input.config, model.heads(Stream::k)))) {}

CachedModel::CachedModel(const Transformer& model, const ModelInput& input, const ProcessLayout& processes,
                         const CompressionPlan& plan, const CompressedCacheOptions& options)
    : CachedModel(model, input, processes) {
  CachePlan compressed = make_cache_plan(input.config, plan, model.heads(Stream::k), scalar_type(compute_),
                                         options.shared, options.plan_path);
  CachePlan replaced = full_.host;
  compressed.exact.recent = replaced.exact.recent = options.exact_recent;
  compressed.document_ends = options.document_ends;
  if (compressed.exact.group > 1) replaced.exact = compressed.exact;  // groups begin behind the first tokens
  compressed_ = make_plan(std::move(compressed));
  replaced_ = make_plan(std::move(replaced));
  exact_prefill_ = options.exact_prefill;
}

CachedModel::CachedModel(const Transformer& model, const ModelInput& input, const ProcessLayout& processes,
                         Recode recode)
    : CachedModel(model, input, processes) {
  recode_ = std::move(recode);
}

CachedModel::Plan CachedModel::make_plan(CachePlan plan) const {
  if (model_.device().is_cpu()) return {std::move(plan), {}};
  DevicePlan on_device = make_device_plan(plan, scalar_type(compute_), model_.device());
  return {std::move(plan), std::move(on_device)};
}

std::unique_ptr<StoringCache> CachedModel::make_storing(const Plan& plan, std::size_t sequences,
                                                        Dtype plain) const {
  const auto count = static_cast<std::int64_t>(sequences);
  const CacheTypes types{compute_, plain};
  if (plan.device)
    return std::make_unique<DeviceCache>(*plan.device, count, types, processes_.tensor_device());
  return std::make_unique<PagedCache>(plan.host, count, types, processes_.tensor_device());
}

std::unique_ptr<KvCache> CachedModel::make_cache(CacheKind kind, std::size_t sequences) const {
  if (kind == CacheKind::simulated)
    return std::make_unique<SimulatedCache>(make_storing(compressed_, sequences, plain_),
                                            make_storing(replaced_, sequences, compute_));
  if (kind == CacheKind::compressed && exact_prefill()) return make_rereadable(sequences);
  return make_storing(kind == CacheKind::full ? full_ : compressed_, sequences, plain_);
}

std::unique_ptr<RereadableCache> CachedModel::make_rereadable(std::size_t sequences) const {
  if (recode_)
    return std::make_unique<RecodedCache>(
        static_cast<std::int64_t>(sequences),
        [this, sequences] { return make_storing(full_, sequences, plain_); }, recode_,
        model_.config().kv_heads, model_.heads(Stream::k), processes_.tensor_device());
  if (!exact_prefill_) return nullptr;
  return std::make_unique<PrefilledCache>(make_storing(compressed_, sequences, plain_),
                                          make_storing(full_, sequences, plain_));
}

InputError CachedModel::overflow(const std::string& what) const {
  return InputError(
      "", what, "", "the forward in " + dtype_name(plain_) + " overflows",
      plain_ == Dtype::float16 ? "set model.dtype to bfloat16 or float32" : "check the weights");
}

}  // namespace headspan
