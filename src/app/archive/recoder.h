// What is left of the keys and values of a prompt behind a codec: codes and decodes them in blocks, as an
// archive would hold them, and counts the bytes. The cache that asks for it is model/cache/recoded_cache.h.
#pragma once

#include <cstdint>
#include <vector>

#include "io/archive/kv_coder.h"

namespace headspan {

class Recoder {
 public:
  /// step: see GroupCoder. document_ends: ids behind which a new document begins, whose first tokens stay as
  /// they are.
  Recoder(KvCodec codec, int step, std::vector<std::int64_t> document_ends);

  const KvCodec& codec() const { return coder_.codec(); }
  int step() const { return step_; }

  /// Takes another step, and counts from nothing again.
  void set_step(int step);

  /// Replaces keys and values of a prompt: [layers, tokens, kv_heads, d]. ids: the prompt. Throws InputError
  /// as KvCoder does. Local.
  void recode(const std::vector<std::int64_t>& ids, std::vector<float>& k, std::vector<float>& v);

  double coded_bytes() const { return bytes_; }      ///< of all blocks, their lengths and checksums too
  double coded_numbers() const { return numbers_; }  ///< of tokens that are not kept as they are

 private:
  void recode_chunk(const std::vector<std::int64_t>& chunk, std::int64_t tokens, std::vector<float>& k,
                    std::vector<float>& v);

  KvCoder coder_;
  int step_;
  std::vector<std::int64_t> document_ends_;
  double bytes_ = 0, numbers_ = 0;
};

}  // namespace headspan
