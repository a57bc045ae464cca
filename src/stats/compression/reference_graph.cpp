#include "stats/compression/reference_graph.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "base/checked.h"

namespace headspan {
namespace {

/// The edges at one threshold, and the heads that become targets.
class Graph {
 public:
  Graph(const std::vector<double>& r2, const std::vector<std::int64_t>& layer, const GraphRule& rule,
        double tau)
      : layer_(layer),
        rule_(rule),
        heads_(static_cast<std::int64_t>(layer.size())),
        edge_(r2.size()),
        is_target_(layer.size()),
        fed_(layer.size()),
        out_(layer.size()) {
    for (std::int64_t t = 0; t < heads_; ++t)
      for (std::int64_t s = 0; s < heads_; ++s) {
        const bool causal = s != t && layer[to_size(s)] <= layer[to_size(t)];
        edge_[at(t, s)] = causal && r2[at(t, s)] >= tau ? 1 : 0;
        fed_[to_size(t)] += edge_[at(t, s)];
        out_[to_size(s)] += edge_[at(t, s)];
      }
  }

  /// Returns how many targets there are.
  std::int64_t choose_targets() {
    std::int64_t count = 0;
    for (std::int64_t next = next_target(); next >= 0; next = next_target()) {
      is_target_[to_size(next)] = true;
      for (std::int64_t t = 0; t < heads_; ++t) fed_[to_size(t)] -= edge_[at(t, next)];
      ++count;
    }
    return count;
  }

  std::vector<std::vector<std::int64_t>> references(const std::vector<double>& r2) const {
    std::vector<std::vector<std::int64_t>> result(to_size(heads_));
    for (std::int64_t t = 0; t < heads_; ++t) {
      if (!is_target_[to_size(t)]) continue;
      std::vector<std::int64_t>& own = result[to_size(t)];
      for (std::int64_t s = 0; s < heads_; ++s)
        if (edge_[at(t, s)] != 0 && !is_target_[to_size(s)]) own.push_back(s);
      std::stable_sort(own.begin(), own.end(), [&](std::int64_t a, std::int64_t b) {
        return rule_.code ? out_[to_size(a)] < out_[to_size(b)] : r2[at(t, a)] > r2[at(t, b)];
      });
      if (static_cast<std::int64_t>(own.size()) > rule_.most) own.resize(to_size(rule_.most));
    }
    return result;
  }

 private:
  std::size_t at(std::int64_t target, std::int64_t source) const { return to_size(target * heads_ + source); }

  /// Whether all targets stay fed when `head` joins them.
  bool can_join(std::int64_t head) const {
    if (fed_[to_size(head)] < rule_.least) return false;
    for (std::int64_t t = 0; t < heads_; ++t)
      if (is_target_[to_size(t)] && fed_[to_size(t)] - edge_[at(t, head)] < rule_.least) return false;
    return true;
  }

  std::int64_t next_target() const {
    std::int64_t best = -1;
    std::tuple<std::int64_t, std::int64_t, std::int64_t> first;
    for (std::int64_t h = 0; h < heads_; ++h) {
      if (is_target_[to_size(h)] || !can_join(h)) continue;
      std::int64_t into = 0;
      for (std::int64_t t = 0; t < heads_; ++t) into += is_target_[to_size(t)] ? edge_[at(t, h)] : 0;
      const auto order = rule_.code ? std::make_tuple(-layer_[to_size(h)], into, h)
                                    : std::make_tuple(layer_[to_size(h)], std::int64_t{0}, h);
      if (best >= 0 && !(order < first)) continue;
      best = h;
      first = order;
    }
    return best;
  }

  const std::vector<std::int64_t>& layer_;
  const GraphRule& rule_;
  std::int64_t heads_;
  std::vector<std::int64_t> edge_;  // [target, source]
  std::vector<bool> is_target_;
  std::vector<std::int64_t> fed_;  // edges into a head from heads that are no targets
  std::vector<std::int64_t> out_;  // edges out of a head
};

}  // namespace

std::vector<std::vector<std::int64_t>> select_by_graph(const std::vector<double>& r2,
                                                       const std::vector<std::int64_t>& layer,
                                                       const GraphRule& rule) {
  const double wanted = rule.targets * static_cast<double>(layer.size());
  double low = 0, high = 1;
  std::vector<std::vector<std::int64_t>> references;
  for (int step = 0; step < 30; ++step) {
    const double tau = (low + high) / 2;
    Graph graph(r2, layer, rule, tau);
    const auto count = static_cast<double>(graph.choose_targets());
    references = graph.references(r2);
    (count < wanted ? high : low) = tau;
    if (std::abs(count - wanted) <= 1 || high - low < 1e-4) break;
  }
  return references;
}

}  // namespace headspan
