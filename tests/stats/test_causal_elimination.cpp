// Lazy elimination against the same greedy rule with every cost taken anew at every step.
#include <limits>
#include <random>

#include <gtest/gtest.h>

#include "stats/compression/causal_elimination.h"

namespace headspan {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

using Candidates = std::vector<std::vector<std::vector<std::int64_t>>>;

/// Every head is predicted from one other head: its loss from each candidate is drawn, and candidates are in
/// the order of their losses, as the elimination wants them.
struct Problem {
  Candidates candidates;                                 // [stream][target]
  std::vector<std::vector<std::vector<double>>> losses;  // of them
  std::vector<std::int64_t> layer;

  Problem(std::int64_t streams, std::int64_t layers, std::int64_t heads, std::uint64_t seed) {
    std::mt19937_64 engine(seed);
    std::uniform_real_distribution<double> uniform(0.1, 10);
    for (std::int64_t head = 0; head < layers * heads; ++head) layer.push_back(head / heads);
    candidates.resize(static_cast<std::size_t>(streams));
    losses.resize(candidates.size());
    for (std::size_t s = 0; s < candidates.size(); ++s)
      for (std::size_t target = 0; target < layer.size(); ++target) {
        std::vector<std::pair<double, std::int64_t>> own;
        for (std::size_t source = 0; source < layer.size(); ++source)
          if (source != target && layer[source] <= layer[target])
            own.emplace_back(uniform(engine), static_cast<std::int64_t>(source));
        std::sort(own.begin(), own.end());
        candidates[s].emplace_back();
        losses[s].emplace_back();
        for (const auto& [loss, source] : own) {
          candidates[s].back().push_back(source);
          losses[s].back().push_back(loss);
        }
      }
  }

  std::vector<MetricChoice> answer(const std::vector<ReferenceQuery>& queries) const {
    std::vector<MetricChoice> choices;
    for (const ReferenceQuery& query : queries) {
      const auto& own =
          losses[static_cast<std::size_t>(query.target.stream)][static_cast<std::size_t>(query.target.head)];
      if (query.allowed.empty())
        choices.push_back({{}, kInfinity});
      else
        choices.push_back({{query.allowed[0]}, own[static_cast<std::size_t>(query.allowed[0])]});
    }
    return choices;
  }

  /// The sum over dropped heads of the loss from their best kept candidate.
  double loss(const std::vector<std::vector<bool>>& kept) const {
    double sum = 0;
    for (std::size_t s = 0; s < kept.size(); ++s)
      for (std::size_t target = 0; target < layer.size(); ++target) {
        if (kept[s][target]) continue;
        double best = kInfinity;
        for (std::size_t at = 0; at < candidates[s][target].size(); ++at)
          if (kept[s][static_cast<std::size_t>(candidates[s][target][at])])
            best = std::min(best, losses[s][target][at]);
        sum += best;
      }
    return sum;
  }
};

/// Which heads are kept when at each step the one goes that adds least to the loss.
std::vector<std::vector<bool>> greedy(const Problem& problem, std::int64_t budget) {
  std::vector<std::vector<bool>> kept(problem.candidates.size(),
                                      std::vector<bool>(problem.layer.size(), true));
  for (auto left = static_cast<std::int64_t>(kept.size() * problem.layer.size()); left > budget; --left) {
    double least = kInfinity;
    std::pair<std::size_t, std::size_t> best{0, 0};
    for (std::size_t s = 0; s < kept.size(); ++s)
      for (std::size_t head = 0; head < problem.layer.size(); ++head) {
        if (!kept[s][head]) continue;
        auto without = kept;
        without[s][head] = false;
        const double loss = problem.loss(without);
        if (loss < least) least = loss, best = {s, head};
      }
    if (least == kInfinity) return {};
    kept[best.first][best.second] = false;
  }
  return kept;
}

TEST(CausalElimination, is_the_greedy_rule) {
  for (const std::uint64_t seed : {1U, 2U, 3U, 4U, 5U, 6U}) {
    const Problem problem(2, 4, 3, seed);
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
          std::int64_t best = -1;  // the first kept candidate: they are ascending by loss
          for (const std::int64_t candidate : problem.candidates[s][head])
            if (best < 0 && kept[s][static_cast<std::size_t>(candidate)]) best = candidate;
          EXPECT_EQ(found[s][head], std::vector<std::int64_t>{best});
        }
    }
  }
}

TEST(CausalElimination, a_head_without_candidates_stays_and_a_budget_below_is_not_met) {
  const Problem problem(1, 3, 1, 7);  // head 0 has no one before it
  const auto answer = [&](const std::vector<ReferenceQuery>& queries) { return problem.answer(queries); };

  const References found = eliminate_causally(problem.candidates, problem.layer, 1, answer);

  ASSERT_EQ(found.size(), 1U);
  EXPECT_TRUE(found[0][0].empty());
  EXPECT_EQ(found[0][1], std::vector<std::int64_t>{0});
  EXPECT_EQ(found[0][2], std::vector<std::int64_t>{0});
  EXPECT_TRUE(eliminate_causally(problem.candidates, problem.layer, 0, answer).empty());
}

TEST(CausalElimination, ties_go_to_the_lower_layer_then_the_earlier_stream_then_the_lower_head) {
  Problem problem(2, 2, 2, 8);
  for (auto& stream : problem.losses)
    for (auto& target : stream)
      for (double& loss : target) loss = 1;

  const References found =
      eliminate_causally(problem.candidates, problem.layer, 7,
                         [&](const std::vector<ReferenceQuery>& queries) { return problem.answer(queries); });

  ASSERT_EQ(found.size(), 2U);
  EXPECT_FALSE(found[0][0].empty());
  for (const std::size_t head : {1U, 2U, 3U}) EXPECT_TRUE(found[0][head].empty());
  for (const auto& references : found[1]) EXPECT_TRUE(references.empty());
}

}  // namespace
}  // namespace headspan
