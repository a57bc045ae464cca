#include "bench/streamed_rows.h"

#include <algorithm>
#include <random>

#include "base/range.h"
#include "stats/gram/collector.h"

namespace headspan {
namespace {

constexpr std::int64_t kDirections = 16;
constexpr std::int64_t kRoundTokens = 512;  // as they come from a forward
/// How much of the shared directions a head has: of 7 kinds.
float share_of(std::int64_t head) { return static_cast<float>(head % 7) / 4; }

}  // namespace

std::vector<float> random_rows(const BenchOptions& options, std::int64_t tokens, unsigned seed) {
  const std::int64_t columns = options.columns();
  std::vector<float> rows(static_cast<std::size_t>(tokens * columns));
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> directions(kDirections);
  float* value = rows.data();
  for (std::int64_t t = 0; t < tokens; ++t) {
    for (float& direction : directions) direction = normal(random);
    for (std::int64_t j = 0; j < columns; ++j)
      *value++ = 1 + normal(random) +
                 share_of(j / options.head_size) * directions[static_cast<std::size_t>(j % kDirections)];
  }
  return rows;
}

HeadGram stream_gram(const Grid& grid, const BenchOptions& options, const std::vector<float>& rows) {
  const std::int64_t columns = options.columns(), total = static_cast<std::int64_t>(rows.size()) / columns;
  const std::int64_t block = gram_block(grid.shape(), options.all_heads(), options.head_size);
  Collector<float> collector(grid, {{columns}, {block}, options.product(), false});
  for (std::int64_t first = 0; first < total; first += kRoundTokens) {
    const std::int64_t tokens = std::min(kRoundTokens, total - first);
    const Range mine = range_of(tokens, grid.comm().size(), grid.comm().rank());
    std::copy_n(rows.data() + (first + mine.first) * columns, mine.count * columns,
                collector.add_rows(0, Part::fit, mine.count));
    collector.end_round(Part::fit, tokens);
  }
  return std::move(collector.finish().front().fit);
}

HeadLayout row_layout(const BenchOptions& options) {
  HeadLayout layout{options.head_size, {}, {}, options.heads * options.head_size};
  for (std::int64_t h = 0; h < options.all_heads(); ++h) {
    layout.layer.push_back(h / options.heads);
    layout.head.push_back(h % options.heads);
  }
  return layout;
}

FitRules row_rules(const BenchOptions& options) {
  FitRules rules;
  rules.double_data = false;
  rules.double_product = options.product() == Precision::float64;
  return rules;
}

}  // namespace headspan
