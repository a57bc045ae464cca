// archive: coding and decoding of keys and values with a codec (--plan, from `headspan archive calibrate`),
// from memory to memory, at about two bits and at one bit a number. The file --folder has the keys and values
// of a sequence, as `headspan archive encode` reads it. The limit is a copy of the same numbers in 16 bits.
#include <cstring>

#include "base/checked.h"
#include "bench/bench.h"
#include "io/archive/codec_file.h"
#include "io/archive/kv_coder.h"
#include "io/archive/kv_tensors.h"
#include "io/archive/rate_control.h"

namespace headspan {
namespace {

/// The tokens of a sequence in chunks, and their keys and values by stream and layer: [tokens, heads, d].
struct TokenChunk {
  std::vector<std::int64_t> tokens;
  std::map<std::pair<Stream, std::int64_t>, std::vector<float>> values;
};

std::vector<TokenChunk> read_chunks(const KvTensors& tensors) {
  const KvShape& shape = tensors.shape();
  std::vector<TokenChunk> chunks;
  for (std::int64_t first = 0; first < shape.tokens; first += kBlockTokens) {
    chunks.emplace_back();
    TokenChunk& chunk = chunks.back();
    for (std::int64_t t = first; t < std::min(first + kBlockTokens, shape.tokens); ++t)
      chunk.tokens.push_back(t);
    for (const auto& [word, stream] : cached_stream_words())
      for (std::int64_t layer = 0; layer < shape.layers; ++layer) {
        std::vector<float>& values = chunk.values[{stream, layer}];
        values.resize(chunk.tokens.size() * to_size(shape.heads * shape.head_size));
        tensors.read(stream, layer, chunk.tokens, values.data());
      }
  }
  return chunks;
}

using Blocks = std::vector<std::vector<std::uint8_t>>;

std::vector<Blocks> encode(const KvCoder& coder, const std::vector<TokenChunk>& chunks, int step) {
  std::vector<Blocks> coded;
  for (const TokenChunk& chunk : chunks)
    coded.push_back(coder.encode(chunk.tokens, chunk.tokens, step,
                                 [&](Stream stream, std::int64_t layer, const auto&, float* to) {
                                   const auto& values = chunk.values.at({stream, layer});
                                   std::copy(values.begin(), values.end(), to);
                                 }));
  return coded;
}

void decode(const KvCoder& coder, const std::vector<TokenChunk>& chunks, const std::vector<Blocks>& coded,
            int step, std::vector<float>& to) {
  for (std::size_t c = 0; c < chunks.size(); ++c)
    for (std::int64_t b = 0; b < coder.blocks(); ++b)
      coder.decode(b, coded[c][to_size(b)], chunks[c].tokens, chunks[c].tokens, step,
                   {0, coder.codec().layers},
                   [&](Stream, std::int64_t, const auto& tokens, const float* values) {
                     std::copy_n(values, tokens.size() * to.size() / to_size(kBlockTokens), to.begin());
                   });
}

}  // namespace

bool bench_archive(const BenchOptions& options, const Comm& comm) {
  const KvTensors tensors(options.folder);
  const KvCoder coder(read_codec(options.plan));
  const std::vector<TokenChunk> chunks = read_chunks(tensors);
  const KvShape& shape = tensors.shape();
  const std::int64_t of_token = shape.heads * shape.head_size;
  const double megabytes = 4e-6 * static_cast<double>(shape.layers * shape.tokens * of_token);
  std::vector<float> one(to_size(of_token * kBlockTokens));
  std::vector<std::uint16_t> from(to_size(2 * shape.layers * shape.tokens * of_token), 1), to(from.size());
  const auto copy = [&] { std::memcpy(to.data(), from.data(), from.size() * sizeof from[0]); };
  for (const double bits : {2.0, 1.0}) {
    const int step = step_for_bits(coder.codec().curve, bits);
    std::vector<Blocks> coded;
    const TurnTimes encoding =
        time_in_turn(comm, options.repeats, copy, [&] { coded = encode(coder, chunks, step); });
    const TurnTimes decoding =
        time_in_turn(comm, options.repeats, copy, [&] { decode(coder, chunks, coded, step, one); });
    std::size_t bytes = 0;
    for (const Blocks& blocks : coded)
      for (const auto& block : blocks) bytes += block.size();
    const double found = 8e-6 * static_cast<double>(bytes) / (megabytes / 2);
    const std::string rest = ", " + std::to_string(found).substr(0, 4) + " bits a number, against a copy";
    for (const auto& [name, times] : {std::pair{"encode", encoding}, {"decode", decoding}})
      report(options, comm,
             {name + rest, "MB/s", megabytes / times.routine, megabytes / times.limit, times.speed});
  }
  return true;
}

}  // namespace headspan
