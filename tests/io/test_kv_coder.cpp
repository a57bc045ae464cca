// The keys and values of a sequence: rotations, groups, layers and tokens each at their place.
#include <cmath>
#include <map>
#include <set>

#include <gtest/gtest.h>

#include "base/checked.h"
#include "io/archive/kv_coder.h"
#include "io/archive/rotary.h"
#include "small_codec.h"
#include "support/input_error.h"

namespace headspan {
namespace {

TEST(RotaryTest, TurnsPairsByTheirAngles) {
  const float quarter = static_cast<float>(M_PI / 2);
  const RotaryTable table({{quarter, 2 * quarter}, 3}, {1, 0, 2});
  // two heads of 5 columns for each token, of which the second is not rotated
  std::vector<float> x(3 * 10, 7);
  for (std::int64_t t = 0; t < 3; ++t)
    for (int i = 0; i < 5; ++i) x[to_size(t * 10 + i)] = static_cast<float>(i + 1);
  const std::vector<float> before = x;
  table.rotate(x.data(), 10);
  const std::vector<std::vector<float>> expected{{-9, -6, 3, -12, 5}, {3, 6, 9, 12, 5}, {-3, 6, -9, 12, 5}};
  for (std::int64_t t = 0; t < 3; ++t)
    for (int i = 0; i < 5; ++i) {
      EXPECT_NEAR(x[to_size(t * 10 + i)], expected[to_size(t)][to_size(i)], 1e-5) << t << i;
      EXPECT_EQ(x[to_size(t * 10 + 5 + i)], 7);
    }
  table.unrotate(x.data(), 10);
  for (std::size_t k = 0; k < x.size(); ++k) EXPECT_NEAR(x[k], before[k], 2e-6);
}

/// Keys and values of 300 tokens, by stream and layer: [tokens, heads, d]. Without their rotation they are
/// what the codec expects.
struct Sequence {
  static constexpr std::int64_t kTokens = 300, kFirstPosition = 11;
  KvCodec codec = small_codec();
  std::map<Stream, std::vector<std::vector<float>>> layers;

  Sequence() {
    for (const auto& [stream, groups] : codec.streams)
      for (const CodecGroup& group : groups)
        for (std::int64_t l = 0; l < group.layers; ++l) layers[stream].push_back(layer_of(stream, group, l));
  }

  std::vector<float> layer_of(Stream stream, const CodecGroup& group, std::int64_t l) const {
    const std::int64_t d = codec.head_size, columns = codec.kv_heads * d, layer = group.first_layer + l;
    std::vector<float> values;
    const auto seed = static_cast<std::uint64_t>(100 * layer + (stream == Stream::k));
    for (const double x : normal_numbers(kTokens * columns, seed))
      values.push_back(static_cast<float>(0.1 * x) +
                       group.mean[to_size(l * columns) + values.size() % to_size(columns)]);
    const std::int64_t rule = codec.rotary_of_layer[to_size(layer)];
    if (stream != Stream::k || rule < 0) return values;
    std::vector<std::int64_t> positions;
    for (std::int64_t t = 0; t < kTokens; ++t) positions.push_back(kFirstPosition + t);
    const RotaryTable table(codec.rotary[to_size(rule)], positions);
    for (std::int64_t head = 0; head < codec.kv_heads; ++head)
      table.rotate(&values[to_size(head * d)], columns);
    return values;
  }

  ReadLayer reader() const {
    return [this](Stream stream, std::int64_t layer, const std::vector<std::int64_t>& tokens, float* to) {
      for (const std::int64_t token : tokens) to = std::copy_n(row(stream, layer, token), columns(), to);
    };
  }

  const float* row(Stream stream, std::int64_t layer, std::int64_t token) const {
    return &layers.at(stream)[to_size(layer)][to_size(token * columns())];
  }
  std::int64_t columns() const { return codec.kv_heads * codec.head_size; }
};

// All coefficients of all columns, which the codec has for the first key group alone, in fine steps: what
// comes back is what went in. Tokens are taken from anywhere.
TEST(KvCoderTest, ReturnsLayersAndTokensToTheirPlace) {
  const Sequence sequence;
  KvCodec codec = sequence.codec;
  codec.streams[Stream::k] = {small_group(codec, 0, 2, 16), small_group(codec, 2, 1, 8)};
  codec.streams[Stream::v] = {small_group(codec, 0, 3, 24)};
  const KvCoder coder(codec);
  const std::vector<std::int64_t> tokens{2, 3, 70, 71, 72, 299};
  std::vector<std::int64_t> positions;
  for (const std::int64_t token : tokens) positions.push_back(Sequence::kFirstPosition + token);
  const int step = -5 * kPerOctave;
  const auto blocks = coder.encode(tokens, positions, step, sequence.reader());
  ASSERT_EQ(coder.blocks(), 3);
  ASSERT_EQ(blocks.size(), 3U);
  for (const Range& layers : {Range{0, 3}, Range{1, 1}, Range{2, 1}, Range{0, 1}}) {
    std::set<std::pair<Stream, std::int64_t>> taken;
    for (std::int64_t block = 0; block < 3; ++block) {
      if (!coder.has_layers(block, layers)) continue;
      coder.decode(block, blocks[to_size(block)], tokens, positions, step, layers,
                   [&](Stream stream, std::int64_t layer, const std::vector<std::int64_t>& found,
                       const float* values) {
                     EXPECT_EQ(found, tokens);
                     EXPECT_TRUE(taken.insert({stream, layer}).second);
                     for (std::size_t t = 0; t < tokens.size(); ++t)
                       for (std::int64_t c = 0; c < sequence.columns(); ++c)
                         ASSERT_NEAR(values[to_size(sequence.columns()) * t + to_size(c)],
                                     sequence.row(stream, layer, tokens[t])[c], 0.1)
                             << layer << " " << t << " " << c;
                   });
    }
    std::set<std::pair<Stream, std::int64_t>> expected;
    for (const Stream stream : {Stream::k, Stream::v})
      for (std::int64_t layer = layers.first; layer < layers.first + layers.count; ++layer)
        expected.insert({stream, layer});
    EXPECT_EQ(taken, expected);
  }
  EXPECT_FALSE(coder.has_layers(0, {2, 1}));
  EXPECT_FALSE(coder.has_layers(1, {0, 2}));
}

// What is coded are values as they are and keys without their rotation, layer beside layer.
TEST(KvCoderTest, GivesGroupsTheirColumns) {
  const Sequence sequence;
  const KvCoder coder(sequence.codec);
  const LevelCoder levels(sequence.codec.models);
  const std::vector<std::int64_t> tokens{5, 6, 250}, positions{16, 17, 261};
  const auto blocks = coder.encode(tokens, positions, -10, sequence.reader());
  std::size_t block = 0;
  for (const Stream stream : {Stream::k, Stream::v})
    for (const CodecGroup& group : sequence.codec.streams.at(stream)) {
      std::vector<float> x;
      for (std::size_t t = 0; t < tokens.size(); ++t)
        for (std::int64_t layer = group.first_layer; layer < group.first_layer + group.layers; ++layer) {
          const float* const row = sequence.row(stream, layer, tokens[t]);
          std::vector<float> columns(row, row + sequence.columns());
          const std::int64_t rule = sequence.codec.rotary_of_layer[to_size(layer)];
          if (stream == Stream::k && rule >= 0)
            for (std::int64_t head = 0; head < sequence.codec.kv_heads; ++head)
              RotaryTable(sequence.codec.rotary[to_size(rule)], {positions[t]})
                  .unrotate(&columns[to_size(head * sequence.codec.head_size)], sequence.columns());
          x.insert(x.end(), columns.begin(), columns.end());
        }
      EXPECT_EQ(blocks[block++], GroupCoder(sequence.codec, group, levels).encode(x.data(), 3, -10));
    }
}

}  // namespace
}  // namespace headspan
