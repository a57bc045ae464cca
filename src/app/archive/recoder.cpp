#include "app/archive/recoder.h"

#include <algorithm>

#include "base/checked.h"
#include "io/archive/archive_file.h"
#include "model/cache/document_starts.h"

namespace headspan {

Recoder::Recoder(KvCodec codec, int step, std::vector<std::int64_t> document_ends)
    : coder_(std::move(codec)), step_(step), document_ends_(std::move(document_ends)) {}

void Recoder::set_step(int step) {
  step_ = step;
  bytes_ = numbers_ = 0;
}

void Recoder::recode(const std::vector<std::int64_t>& ids, std::vector<float>& k, std::vector<float>& v) {
  const auto tokens = static_cast<std::int64_t>(ids.size());
  DocumentStarts starts(1, codec().exact_first, document_ends_);
  starts.follow(ids, {tokens});
  const std::vector<std::int64_t>& exact = starts.positions(0);
  std::vector<std::int64_t> chunk;
  for (std::int64_t t = codec().exact_first; t < tokens; ++t) {
    if (!std::binary_search(exact.begin(), exact.end(), t)) chunk.push_back(t);
    if (chunk.size() < to_size(kBlockTokens) && t + 1 < tokens) continue;
    if (!chunk.empty()) recode_chunk(chunk, tokens, k, v);
    chunk.clear();
  }
}

void Recoder::recode_chunk(const std::vector<std::int64_t>& chunk, std::int64_t tokens, std::vector<float>& k,
                           std::vector<float>& v) {
  const std::int64_t width = codec().kv_heads * codec().head_size;
  const auto row = [&](Stream stream, std::int64_t layer, std::int64_t token) {
    return &(stream == Stream::k ? k : v)[to_size((layer * tokens + token) * width)];
  };
  const auto read = [&](Stream stream, std::int64_t layer, const auto& wanted, float* to) {
    for (const std::int64_t token : wanted) to = std::copy_n(row(stream, layer, token), width, to);
  };
  const auto take = [&](Stream stream, std::int64_t layer, const auto& decoded, const float* values) {
    for (const std::int64_t token : decoded) {
      std::copy_n(values, width, row(stream, layer, token));
      values += width;
    }
  };
  const auto blocks = coder_.encode(chunk, chunk, step_, read);
  for (std::size_t b = 0; b < blocks.size(); ++b) {
    coder_.decode(static_cast<std::int64_t>(b), blocks[b], chunk, chunk, step_, {0, codec().layers}, take);
    bytes_ += static_cast<double>(kBlockHead) + static_cast<double>(blocks[b].size());
  }
  numbers_ += 2. * static_cast<double>(codec().layers * width) * static_cast<double>(chunk.size());
}

}  // namespace headspan
