#include "app/cached_model.h"

namespace headspan {

CacheKind cache_kind(const std::string& name) {
  if (name == "full") return CacheKind::full;
  return name == "simulated" ? CacheKind::simulated : CacheKind::compressed;
}

CachedModel::CachedModel(const Transformer& model, const ModelInput& input,
                         const std::optional<CompressionPlan>& plan, const std::string& plan_path,
                         std::int64_t exact_recent, const Team& team)
    : model_(model),
      team_(team),
      plain_(input.dtype),
      compute_(input.dtype == Dtype::float64 ? Dtype::float64 : Dtype::float32),
      full_(full_plan(input.config, model.heads(Stream::k))) {
  if (!plan) return;
  compressed_ =
      make_cache_plan(input.config, *plan, model.heads(Stream::k), scalar_type(compute_), plan_path);
  compressed_.exact_recent = exact_recent;
}

std::unique_ptr<KvCache> CachedModel::make_cache(CacheKind kind, std::size_t sequences) const {
  const auto count = static_cast<std::int64_t>(sequences);
  if (kind == CacheKind::simulated)
    return std::make_unique<SimulatedCache>(compressed_, full_, count, compute_, plain_, team_.tensor());
  return std::make_unique<PagedCache>(kind == CacheKind::full ? full_ : compressed_, count, compute_, plain_,
                                      team_.tensor());
}

}  // namespace headspan
