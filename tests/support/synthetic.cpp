#include "support/synthetic.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/splitmix64.h"
#include "dist/matrix/tile_exchange.h"

namespace headspan {
namespace {

/// Uniform in (0, 1).
double uniform(SplitMix64& random) { return (static_cast<double>(random.next() >> 11) + 0.5) * 0x1p-53; }

}  // namespace

Activations gaussian(std::int64_t tokens, std::int64_t columns, std::uint64_t seed) {
  Activations z{tokens, columns, std::vector<double>(static_cast<std::size_t>(tokens * columns))};
  SplitMix64 random(seed);
  for (double& value : z.values)
    value = std::sqrt(-2 * std::log(uniform(random))) * std::cos(2 * std::acos(-1.0) * uniform(random));
  return z;
}

Activations cosines(std::int64_t tokens, std::int64_t columns) {
  Activations z{tokens, columns, std::vector<double>(static_cast<std::size_t>(tokens * columns))};
  const double step = std::acos(-1.0) / static_cast<double>(2 * tokens);
  for (std::int64_t t = 0; t < tokens; ++t)
    for (std::int64_t k = 0; k < columns; ++k)
      z.at(t, k) = std::cos(step * static_cast<double>((k + 1) * (2 * t + 1) % (4 * tokens)));
  return z;
}

Activations product(const Activations& a, const Activations& b) {
  Activations c{a.tokens, b.columns, std::vector<double>(static_cast<std::size_t>(a.tokens * b.columns))};
  for (std::int64_t t = 0; t < a.tokens; ++t)
    for (std::int64_t k = 0; k < a.columns; ++k)
      for (std::int64_t j = 0; j < b.columns; ++j) c.at(t, j) += a.at(t, k) * b.at(k, j);
  return c;
}

Activations correlated(std::int64_t tokens, std::int64_t columns, std::int64_t latents, double noise,
                       std::uint64_t mixing_seed, std::uint64_t token_seed) {
  const Activations mixing = gaussian(latents, columns, mixing_seed);
  const Activations mean = gaussian(1, columns, mixing_seed + 1);
  const Activations error = gaussian(tokens, columns, token_seed);
  Activations z = product(gaussian(tokens, latents, token_seed + 1), mixing);
  for (std::int64_t t = 0; t < tokens; ++t)
    for (std::int64_t j = 0; j < columns; ++j) z.at(t, j) += noise * error.at(t, j) + 3 * mean.at(0, j);
  return z;
}

void copy_head(Activations& z, std::int64_t d, std::int64_t from, std::int64_t to) {
  for (std::int64_t t = 0; t < z.tokens; ++t) std::copy_n(&z.at(t, from * d), d, &z.at(t, to * d));
}

void make_constant(Activations& z, std::int64_t column, double value) {
  for (std::int64_t t = 0; t < z.tokens; ++t) z.at(t, column) = value;
}

HeadLayout make_layout(std::int64_t layers, std::int64_t heads, std::int64_t d) {
  HeadLayout layout;
  layout.head_size = d;
  for (std::int64_t layer = 0; layer < layers; ++layer)
    for (std::int64_t head = 0; head < heads; ++head) {
      layout.layer.push_back(layer);
      layout.head.push_back(head);
    }
  return layout;
}

std::array<std::int64_t, 3> blocks_to_try(const HeadLayout& layout) {
  return {layout.head_size, 3 * layout.head_size, layout.columns()};
}

Range dealt_tokens(std::int64_t tokens, int ranks, int rank) {
  const auto weight = [&](int r) { return r % 3 == 2 || (ranks == 2 && r == 0) ? 0 : r + 1; };
  std::int64_t total = 0, before = 0;
  for (int r = 0; r < ranks; ++r) total += weight(r);
  for (int r = 0; r < rank; ++r) before += weight(r);
  const std::int64_t first = tokens * before / total;
  return {first, tokens * (before + weight(rank)) / total - first};
}

HeadGram make_gram(const Grid& grid, const Activations& z, const GramPlan& plan) {
  const auto panel = [&](std::int64_t first) {  // of this rank
    const Range mine =
        dealt_tokens(std::min(plan.panel, z.tokens - first), grid.comm().size(), grid.comm().rank());
    return Range{first + mine.first, mine.count};
  };
  const Range start = panel(0);
  const auto shift =
      provisional_mean(grid.comm(), z.values.data() + start.first * z.columns, start.count, z.columns);
  GramSums sums(grid, z.columns, plan.block);
  GramUpdater<double> updater(grid, plan.precision);
  for (std::int64_t first = 0; first < z.tokens; first += plan.panel) {
    const Range mine = panel(first);
    updater.add(sums, z.values.data() + mine.first * z.columns, mine.count, shift);
  }
  updater.drain();
  return finish(std::move(sums), shift);
}

RegressionData make_data(const Grid& grid, const HeadLayout& layout, const Activations& fit,
                         const Activations* heldout, const GramPlan& plan) {
  FitRules rules;
  rules.double_product = plan.precision == Precision::float64;
  std::optional<HeadGram> heldout_gram;
  if (heldout != nullptr) heldout_gram = make_gram(grid, *heldout, plan);
  return regression_data(layout, rules, make_gram(grid, fit, plan), std::move(heldout_gram));
}

std::vector<double> gather_symmetric(const Matrix& matrix) {
  const std::int64_t n = matrix.rows().size;
  std::vector<Tile> lower;
  for (std::int64_t j = 0; j < n; ++j)
    for (std::int64_t i = j; i < n; ++i) lower.push_back({i, j});
  const std::vector<double> values = fetch_tiles(matrix, 1, lower);
  std::vector<double> whole(static_cast<std::size_t>(n * n));
  for (std::size_t k = 0; k < lower.size(); ++k) {
    whole[static_cast<std::size_t>(lower[k].row + lower[k].column * n)] = values[k];
    whole[static_cast<std::size_t>(lower[k].column + lower[k].row * n)] = values[k];
  }
  return whole;
}

}  // namespace headspan
