// Where tokens are in an archive, against counting one by one.
#include <algorithm>

#include <gtest/gtest.h>

#include "base/checked.h"
#include "io/archive/archive_layout.h"
#include "support/input_error.h"

namespace headspan {
namespace {

ArchiveHeader header_of(std::int64_t tokens, const std::vector<std::int64_t>& exact) {
  ArchiveHeader header;
  header.layers = 3;
  header.kv_heads = 2;
  header.head_size = 4;
  header.tokens = tokens;
  header.exact = exact;
  header.first_position = 100;
  return header;
}

TEST(ArchiveLayoutTest, CodesTheTokensThatAreNotExact) {
  const std::vector<std::vector<std::int64_t>> kept{
      {}, {0, 1, 2, 3}, {0, 1, 130, 131, 132}, {299}, {5, 127, 128, 129, 255, 256, 298}};
  for (const auto& exact : kept) {
    const ArchiveHeader header = header_of(300, exact);
    const ArchiveLayout layout(header, 5);
    std::vector<std::int64_t> expected, found;
    for (std::int64_t token = 0; token < 300; ++token)
      if (std::count(exact.begin(), exact.end(), token) == 0) expected.push_back(token);
    for (std::int64_t chunk = 0; chunk < layout.chunks(); ++chunk) {
      const auto tokens = layout.tokens(chunk);
      EXPECT_EQ(tokens.size(), chunk + 1 < layout.chunks() ? 128U : expected.size() - 128 * 2);
      found.insert(found.end(), tokens.begin(), tokens.end());
      for (const Range& range : {Range{0, 1}, Range{127, 3}, Range{200, 0}, Range{298, 2}}) {
        const bool has = std::any_of(tokens.begin(), tokens.end(),
                                     [&](std::int64_t token) { return range.contains(token); });
        EXPECT_EQ(layout.has_tokens(chunk, range), has);
      }
      EXPECT_EQ(layout.block(chunk, 2), 1 + chunk * 5 + 2);
    }
    EXPECT_EQ(found, expected);
    EXPECT_EQ(layout.blocks(), 1 + 5 * layout.chunks());
    EXPECT_EQ(layout.positions({0, 7}), (std::vector<std::int64_t>{100, 107}));
  }
  const ArchiveHeader nothing = header_of(4, {0, 1, 2, 3});
  EXPECT_EQ(ArchiveLayout(nothing, 5).chunks(), 0);
  EXPECT_EQ(ArchiveLayout(nothing, 5).blocks(), 1);
}

float number_at(Stream stream, std::int64_t layer, std::int64_t token, std::int64_t column) {
  return static_cast<float>((stream == Stream::k ? 1 : -1) * (layer * 512 + token * 8 + column)) / 8;
}

TEST(ArchiveLayoutTest, KeepsExactTokens) {
  for (const ElementType type : {ElementType::float16, ElementType::float32})
    for (const std::vector<std::int64_t>& exact : {std::vector<std::int64_t>{0, 1, 17}, {}}) {
      ArchiveHeader header = header_of(30, exact);
      header.type = type;
      const auto block = exact_block(
          header, [](Stream stream, std::int64_t layer, const std::vector<std::int64_t>& tokens, float* to) {
            for (const std::int64_t token : tokens)
              for (std::int64_t c = 0; c < 8; ++c) *to++ = number_at(stream, layer, token, c);
          });
      EXPECT_EQ(block.size(), 2 * 3 * exact.size() * 8 * to_size(element_bytes(type)));
      for (const Range& layers : {Range{0, 3}, Range{1, 1}}) {
        std::int64_t taken = 0;
        read_exact_block(header, block, layers,
                         [&](Stream stream, std::int64_t layer, const std::vector<std::int64_t>& tokens,
                             const float* values) {
                           EXPECT_TRUE(layers.contains(layer));
                           EXPECT_EQ(tokens, exact);
                           for (const std::int64_t token : tokens)
                             for (std::int64_t c = 0; c < 8; ++c)
                               EXPECT_EQ(*values++, number_at(stream, layer, token, c));
                           ++taken;
                         });
        EXPECT_EQ(taken, exact.empty() ? 0 : 2 * layers.count);
      }
      auto more = block;
      more.push_back(0);
      EXPECT_NE(input_error_of([&] {
                  read_exact_block(header, more, {0, 3}, {});
                }).find("has not the exact tokens"),
                std::string::npos);
    }
}

}  // namespace
}  // namespace headspan
