// Lazy elimination against the same greedy rule with every cost computed again at every step.
#include <limits>
#include <random>

#include <gtest/gtest.h>

#include "stats/compression/causal_elimination.h"

namespace headspan {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

using Candidates = std::vector<std::vector<std::vector<std::int64_t>>>;

/// Every head is predicted from `references` other heads. Its loss from each candidate alone is random, and
/// its candidates are in the order of these losses. The inverse losses of several references add up.
struct Problem {
  Candidates candidates;                                 // [stream][target]
  std::vector<std::vector<std::vector<double>>> losses;  // of them
  std::vector<std::int64_t> layer;
  std::size_t references;

  Problem(std::int64_t streams, std::int64_t layers, std::int64_t heads, std::uint64_t seed,
          std::size_t per_target = 1)
      : references(per_target) {
    std::mt19937_64 engine(seed);
    std::uniform_real_distribution<double> uniform(0.1, 10);
    for (std::int64_t head = 0; head < layers * heads; ++head) layer.push_back(head / heads);
    candidates.resize(static_cast<std::size_t>(streams));
    losses.resize(candidates.size());
    for (std::size_t s = 0; s < candidates.size(); ++s)
      for (std::size_t target = 0; target < layer.size(); ++target) {
        std::vector<std::pair<double, std::int64_t>> drawn;
        for (std::size_t source = 0; source < layer.size(); ++source)
          if (source != target && layer[source] <= layer[target])
            drawn.emplace_back(uniform(engine), static_cast<std::int64_t>(source));
        std::sort(drawn.begin(), drawn.end());
        candidates[s].emplace_back();
        losses[s].emplace_back();
        for (const auto& [loss, source] : drawn) {
          candidates[s].back().push_back(source);
          losses[s].back().push_back(loss);
        }
      }
  }

  /// The first of the positions that are allowed.
  MetricChoice best(std::size_t stream, std::size_t target, std::vector<std::int64_t> allowed) const {
    if (allowed.size() > references) allowed.resize(references);
    double inverse = 0;
    for (const std::int64_t at : allowed) inverse += 1 / losses[stream][target][static_cast<std::size_t>(at)];
    return {allowed, allowed.empty() ? kInfinity : 1 / inverse};
  }

  /// Returns the positions of a target's candidates that are kept.
  std::vector<std::int64_t> kept_positions(const std::vector<std::vector<bool>>& kept, std::size_t stream,
                                           std::size_t target) const {
    std::vector<std::int64_t> positions;
    for (std::size_t at = 0; at < candidates[stream][target].size(); ++at)
      if (kept[stream][static_cast<std::size_t>(candidates[stream][target][at])])
        positions.push_back(static_cast<std::int64_t>(at));
    return positions;
  }

  std::vector<MetricChoice> answer(const std::vector<ReferenceQuery>& queries) const {
    std::vector<MetricChoice> choices;
    for (const ReferenceQuery& query : queries)
      choices.push_back(best(static_cast<std::size_t>(query.target.stream),
                             static_cast<std::size_t>(query.target.head), query.allowed));
    return choices;
  }

  /// The sum over dropped heads of the loss from their best kept candidates.
  double loss(const std::vector<std::vector<bool>>& kept) const {
    double sum = 0;
    for (std::size_t s = 0; s < kept.size(); ++s)
      for (std::size_t target = 0; target < layer.size(); ++target)
        if (!kept[s][target]) sum += best(s, target, kept_positions(kept, s, target)).loss;
    return sum;
  }
};

/// Returns the heads that are kept if each step drops the one that adds least to the loss.
std::vector<std::vector<bool>> greedy(const Problem& problem, std::int64_t budget) {
  std::vector<std::vector<bool>> kept(problem.candidates.size(),
                                      std::vector<bool>(problem.layer.size(), true));
  for (auto left = static_cast<std::int64_t>(kept.size() * problem.layer.size()); left > budget; --left) {
    double smallest = kInfinity;
    std::pair<std::size_t, std::size_t> best{0, 0};
    for (std::size_t s = 0; s < kept.size(); ++s)
      for (std::size_t head = 0; head < problem.layer.size(); ++head) {
        if (!kept[s][head]) continue;
        auto without = kept;
        without[s][head] = false;
        const double loss = problem.loss(without);
        if (loss < smallest) smallest = loss, best = {s, head};
      }
    if (smallest == kInfinity) return {};
    kept[best.first][best.second] = false;
  }
  return kept;
}

class CausalElimination : public testing::TestWithParam<std::size_t> {};  // references of a head

TEST_P(CausalElimination, is_the_greedy_rule) {
  for (const std::uint64_t seed : {1U, 2U, 3U, 4U, 5U, 6U}) {
    const Problem problem(2, 4, 3, seed, GetParam());
    for (const std::int64_t budget : {24, 23, 18, 12, 6, 3}) {
      const auto kept = greedy(problem, budget);

      const References found = eliminate_causally(
          problem.candidates, problem.layer, budget,
          [&](const std::vector<ReferenceQuery>& queries) { return problem.answer(queries); });

      ASSERT_EQ(found.size(), kept.size()) << "seed " << seed << ", budget " << budget;
      for (std::size_t s = 0; s < kept.size(); ++s)
        for (std::size_t head = 0; head < kept[s].size(); ++head) {
          ASSERT_EQ(found[s][head].empty(), bool(kept[s][head])) << "seed " << seed << ", budget " << budget;
          if (kept[s][head]) continue;
          std::vector<std::int64_t> best;  // the first kept candidates: they are ascending by loss
          for (const std::int64_t candidate : problem.candidates[s][head])
            if (best.size() < GetParam() && kept[s][static_cast<std::size_t>(candidate)])
              best.push_back(candidate);
          EXPECT_EQ(found[s][head], best) << "seed " << seed << ", budget " << budget;
        }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(References, CausalElimination, testing::Values(1, 2));

TEST(CausalEliminationOfOne, a_head_without_candidates_stays_and_a_budget_below_is_not_met) {
  const Problem problem(1, 3, 1, 7);  // head 0 has no one before it
  const auto answer = [&](const std::vector<ReferenceQuery>& queries) { return problem.answer(queries); };

  const References found = eliminate_causally(problem.candidates, problem.layer, 1, answer);

  ASSERT_EQ(found.size(), 1U);
  EXPECT_TRUE(found[0][0].empty());
  EXPECT_EQ(found[0][1], std::vector<std::int64_t>{0});
  EXPECT_EQ(found[0][2], std::vector<std::int64_t>{0});
  EXPECT_TRUE(eliminate_causally(problem.candidates, problem.layer, 0, answer).empty());
}

TEST(CausalEliminationOfOne, ties_go_to_the_lower_layer_then_the_earlier_stream_then_the_lower_head) {
  Problem problem(2, 2, 2, 8);
  for (auto& stream : problem.losses)
    for (auto& target : stream)
      for (double& loss : target) loss = 1;
  // The other head of layer 0 of a stream has then no one to refer to.
  const std::vector<std::pair<std::size_t, std::size_t>> dropped{{0, 0}, {1, 0}, {0, 2}, {0, 3}, {1, 2}};
  std::vector<std::vector<bool>> expected(2, std::vector<bool>(4, false));
  for (std::size_t drops = 1; drops <= dropped.size(); ++drops) {
    const auto [stream, head] = dropped[drops - 1];
    expected[stream][head] = true;

    const References found = eliminate_causally(
        problem.candidates, problem.layer, 8 - static_cast<std::int64_t>(drops),
        [&](const std::vector<ReferenceQuery>& queries) { return problem.answer(queries); });

    ASSERT_EQ(found.size(), 2U);
    for (std::size_t s = 0; s < 2; ++s)
      for (std::size_t h = 0; h < 4; ++h)
        EXPECT_EQ(!found[s][h].empty(), expected[s][h]) << drops << " drops, stream " << s << ", head " << h;
  }
}

}  // namespace
}  // namespace headspan
