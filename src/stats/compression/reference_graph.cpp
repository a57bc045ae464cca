#include "stats/compression/reference_graph.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "base/checked.h"

namespace headspan {
namespace {

/// The edges at a threshold tau, and the heads that become targets.
class Graph {
 public:
  Graph(const std::vector<double>& r2, const std::vector<std::int64_t>& layer, const GraphRule& rule,
        double tau)
      : layer_(layer),
        rule_(rule),
        heads_(static_cast<std::int64_t>(layer.size())),
        edge_(r2.size()),
        is_target_(layer.size()),
        incoming_(layer.size()),
        outgoing_(layer.size()) {
    for (std::int64_t t = 0; t < heads_; ++t)
      for (std::int64_t s = 0; s < heads_; ++s) {
        const bool causal = s != t && layer[to_size(s)] <= layer[to_size(t)];
        edge_[at(t, s)] = causal && r2[at(t, s)] >= tau ? 1 : 0;
        incoming_[to_size(t)] += edge_[at(t, s)];
        outgoing_[to_size(s)] += edge_[at(t, s)];
      }
  }

  /// Adds targets as long as heads can join. Returns how many there are.
  std::int64_t choose_targets() {
    std::int64_t count = 0;
    for (std::int64_t next = next_target(); next >= 0; next = next_target()) {
      is_target_[to_size(next)] = true;
      for (std::int64_t t = 0; t < heads_; ++t) incoming_[to_size(t)] -= edge_[at(t, next)];
      ++count;
    }
    return count;
  }

  std::vector<std::vector<std::int64_t>> references(const std::vector<double>& r2) const {
    std::vector<std::vector<std::int64_t>> result(to_size(heads_));
    for (std::int64_t t = 0; t < heads_; ++t) {
      if (!is_target_[to_size(t)]) continue;
      std::vector<std::int64_t>& sources = result[to_size(t)];
      for (std::int64_t s = 0; s < heads_; ++s)
        if (edge_[at(t, s)] != 0 && !is_target_[to_size(s)]) sources.push_back(s);
      std::stable_sort(sources.begin(), sources.end(), [&](std::int64_t a, std::int64_t b) {
        return rule_.code ? outgoing_[to_size(a)] < outgoing_[to_size(b)] : r2[at(t, a)] > r2[at(t, b)];
      });
      sources.resize(std::min(sources.size(), to_size(rule_.max_references)));
    }
    return result;
  }

 private:
  std::size_t at(std::int64_t target, std::int64_t source) const { return to_size(target * heads_ + source); }

  /// Returns whether all targets keep enough references if `head` joins them.
  bool can_join(std::int64_t head) const {
    if (incoming_[to_size(head)] < rule_.min_references) return false;
    for (std::int64_t t = 0; t < heads_; ++t)
      if (is_target_[to_size(t)] && incoming_[to_size(t)] - edge_[at(t, head)] < rule_.min_references)
        return false;
    return true;
  }

  /// Returns the head that joins the targets next; -1: none can.
  std::int64_t next_target() const {
    std::int64_t best = -1;
    std::tuple<std::int64_t, std::int64_t, std::int64_t> first;
    for (std::int64_t h = 0; h < heads_; ++h) {
      if (is_target_[to_size(h)] || !can_join(h)) continue;
      std::int64_t edges = 0;  // into the targets
      for (std::int64_t t = 0; t < heads_; ++t) edges += is_target_[to_size(t)] ? edge_[at(t, h)] : 0;
      const auto order = rule_.code ? std::make_tuple(-layer_[to_size(h)], edges, h)
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
  std::vector<std::int64_t> edge_;  // [target, source] 1 or 0
  std::vector<bool> is_target_;
  std::vector<std::int64_t> incoming_;  // edges into a head from heads that are no targets
  std::vector<std::int64_t> outgoing_;  // edges out of a head
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
