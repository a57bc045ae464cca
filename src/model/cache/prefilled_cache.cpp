#include "model/cache/prefilled_cache.h"

#include "base/checked.h"
#include "base/error.h"

namespace headspan {

PrefilledCache::PrefilledCache(std::unique_ptr<StoringCache> stored, std::unique_ptr<StoringCache> full)
    : RereadableCache(static_cast<std::int64_t>(stored->lengths().size())),
      stored_(std::move(stored)),
      full_(std::move(full)) {}

void PrefilledCache::begin(const std::vector<std::int64_t>& tokens, const std::vector<std::int64_t>& counts) {
  if (phase_ != Phase::second_reading) stored_->begin(tokens, counts);
  if (phase_ == Phase::prompts) chunks_.emplace_back();
}

at::Tensor PrefilledCache::attend(std::int64_t layer, const at::Tensor& q, const at::Tensor& k,
                                  const at::Tensor& v, const std::vector<std::int64_t>& counts) {
  if (phase_ == Phase::continuations) return stored_->attend(layer, q, k, v, counts);
  if (phase_ == Phase::second_reading) {
    const bool keeps = stored_->exact().keeps_recent();
    const Appended exact = keeps ? chunks_.at(chunk_).at(to_size(layer)) : Appended{k, v};
    return stored_->attend_appended(layer, q, exact.k, exact.v, counts);
  }
  stored_->append(Stream::k, layer, k, counts);
  stored_->append(Stream::v, layer, v, counts);
  stored_->keep_recent(layer, k, v, counts);
  if (stored_->exact().keeps_recent()) chunks_.back().push_back({k, v});
  return full_->attend(layer, q, k, v, counts);
}

void PrefilledCache::advance(const std::vector<std::int64_t>& counts) {
  KvCache::advance(counts);
  stored_->advance(counts);
  if (full_) full_->advance(counts);
  ++chunk_;
}

void PrefilledCache::end_prompts() {
  if (phase_ == Phase::prompts) phase_ = Phase::continuations;
  full_.reset();
  chunks_.clear();
}

void PrefilledCache::read_again() {
  HS_ASSERT(phase_ == Phase::prompts);
  phase_ = Phase::second_reading;
  full_.reset();
  chunk_ = 0;
  rewind();
  stored_->rewind();
}

CacheBytes PrefilledCache::bytes() const {
  CacheBytes bytes = stored_->bytes();
  if (full_) bytes.stored += full_->bytes().stored;
  return bytes;
}

}  // namespace headspan
