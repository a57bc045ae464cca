// A compressed cache that is filled as a server fills it: while a prompt is read, its tokens attend to each
// other as they are, and only what is stored of them is compressed. Tokens after the prompt attend to what is
// stored. Also lets all tokens be read a second time, each as if it were the first one behind a prompt.
#pragma once

#include <memory>
#include <vector>

#include "model/cache/kv_cache.h"

namespace headspan {

class PrefilledCache : public RereadableCache {
 public:
  /// Takes two fresh caches for the same sequences and heads. `full` is freed when the prompts end.
  PrefilledCache(std::unique_ptr<StoringCache> stored, std::unique_ptr<StoringCache> full);

  void begin(const std::vector<std::int64_t>& tokens, const std::vector<std::int64_t>& counts) override;
  at::Tensor attend(std::int64_t layer, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                    const std::vector<std::int64_t>& counts) override;
  void advance(const std::vector<std::int64_t>& counts) override;
  void end_prompts() override;
  CacheBytes bytes() const override;

  void read_again() override;

 private:
  enum class Phase { prompts, continuations, second_reading };

  /// Keys and values of a layer.
  struct Appended {
    at::Tensor k, v;
  };

  std::unique_ptr<StoringCache> stored_, full_;
  Phase phase_ = Phase::prompts;
  std::vector<std::vector<Appended>> chunks_;  // [chunk][layer]; empty unless recent tokens are kept
  std::size_t chunk_ = 0;                      // of the second reading
};

}  // namespace headspan
