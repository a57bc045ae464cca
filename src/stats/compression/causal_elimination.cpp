#include "stats/compression/causal_elimination.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <queue>
#include <tuple>

#include "base/checked.h"

namespace headspan {
namespace {

/// Stream, target, and a head that is not allowed, or -1.
using Key = std::tuple<std::int64_t, std::int64_t, std::int64_t>;
/// Cost, layer, stream, head.
using Entry = std::tuple<double, std::int64_t, std::int64_t, std::int64_t>;

class CausalElimination {
 public:
  CausalElimination(const References& candidates, const std::vector<std::int64_t>& layer,
                    const ReferenceOracle& answer)
      : candidates_(candidates), layer_(layer), answer_(answer) {
    for (const auto& stream : candidates) {
      kept_.emplace_back(stream.size(), true);
      chosen_.emplace_back(stream.size());
    }
  }

  References run(std::int64_t budget) {
    std::vector<StreamHead> all;
    for (std::size_t s = 0; s < candidates_.size(); ++s)
      for (std::size_t h = 0; h < candidates_[s].size(); ++h)
        all.push_back({static_cast<std::int64_t>(s), static_cast<std::int64_t>(h)});
    std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue;
    look_up(all);
    for (const StreamHead& head : all) queue.push(entry(head));
    for (auto kept = static_cast<std::int64_t>(all.size()); kept > budget;) {
      const StreamHead head{std::get<2>(queue.top()), std::get<3>(queue.top())};
      queue.pop();
      look_up({head});
      const Entry updated = entry(head);
      if (!queue.empty() && queue.top() < updated) {
        queue.push(updated);
      } else if (std::isinf(std::get<0>(updated))) {
        return {};
      } else {
        drop(head);
        --kept;
      }
    }
    return references();
  }

 private:
  /// Returns whether all references of a choice are still kept.
  bool is_valid(const StreamHead& head, const MetricChoice& choice) const {
    const auto& candidates = candidates_[to_size(head.stream)][to_size(head.head)];
    return std::all_of(choice.references.begin(), choice.references.end(), [&](std::int64_t at) {
      return bool(kept_[to_size(head.stream)][to_size(candidates[to_size(at)])]);
    });
  }

  /// Returns the dropped heads that refer to `head`.
  std::vector<std::int64_t> users(const StreamHead& head) const {
    std::vector<std::int64_t> result;
    const auto& kept = kept_[to_size(head.stream)];
    for (std::size_t t = 0; t < kept.size(); ++t) {
      if (kept[t]) continue;
      const auto& candidates = candidates_[to_size(head.stream)][t];
      const auto& chosen = chosen_[to_size(head.stream)][t].references;
      if (std::any_of(chosen.begin(), chosen.end(),
                      [&](std::int64_t at) { return candidates[to_size(at)] == head.head; }))
        result.push_back(static_cast<std::int64_t>(t));
    }
    return result;
  }

  /// Returns the keys of the choices that determine the cost of a head.
  std::vector<Key> keys_of(const StreamHead& head) const {
    std::vector<Key> keys{{head.stream, head.head, -1}};
    for (const std::int64_t user : users(head)) keys.emplace_back(head.stream, user, head.head);
    return keys;
  }

  /// Returns what asks for the choice of a key.
  ReferenceQuery query_of(const Key& key) const {
    const auto [stream, target, without] = key;
    ReferenceQuery query{{stream, target}, {}};
    const auto& candidates = candidates_[to_size(stream)][to_size(target)];
    for (std::size_t at = 0; at < candidates.size(); ++at)
      if (candidates[at] != without && kept_[to_size(stream)][to_size(candidates[at])])
        query.allowed.push_back(static_cast<std::int64_t>(at));
    return query;
  }

  /// Asks for the choices that these heads' costs need and that are unknown or outdated: a choice remains the
  /// best until one of its references is dropped.
  void look_up(const std::vector<StreamHead>& heads) {
    std::vector<Key> keys;
    std::vector<ReferenceQuery> queries;
    for (const StreamHead& head : heads)
      for (const Key& key : keys_of(head)) {
        const auto known = known_.find(key);
        if (known != known_.end() && is_valid({std::get<0>(key), std::get<1>(key)}, known->second)) continue;
        keys.push_back(key);
        queries.push_back(query_of(key));
      }
    const std::vector<MetricChoice> answers = answer_(queries);
    for (std::size_t i = 0; i < keys.size(); ++i) known_[keys[i]] = answers[i];
  }

  Entry entry(const StreamHead& head) const {
    double cost = known_.at({head.stream, head.head, -1}).loss;
    for (const std::int64_t user : users(head))
      cost +=
          known_.at({head.stream, user, head.head}).loss - chosen_[to_size(head.stream)][to_size(user)].loss;
    return {cost, layer_[to_size(head.head)], head.stream, head.head};
  }

  void drop(const StreamHead& head) {
    auto& chosen = chosen_[to_size(head.stream)];
    for (const std::int64_t user : users(head))
      chosen[to_size(user)] = known_.at({head.stream, user, head.head});
    chosen[to_size(head.head)] = known_.at({head.stream, head.head, -1});
    kept_[to_size(head.stream)][to_size(head.head)] = false;
  }

  References references() const {
    References result;
    for (std::size_t s = 0; s < candidates_.size(); ++s) {
      result.emplace_back(candidates_[s].size());
      for (std::size_t t = 0; t < candidates_[s].size(); ++t) {
        if (kept_[s][t]) continue;
        for (const std::int64_t at : chosen_[s][t].references)
          result[s][t].push_back(candidates_[s][t][to_size(at)]);
      }
    }
    return result;
  }

  const References& candidates_;
  const std::vector<std::int64_t>& layer_;
  const ReferenceOracle& answer_;
  std::vector<std::vector<bool>> kept_;            // by stream and head
  std::vector<std::vector<MetricChoice>> chosen_;  // by stream and head: those of dropped heads
  std::map<Key, MetricChoice> known_;
};

}  // namespace

References eliminate_causally(const References& candidates, const std::vector<std::int64_t>& layer,
                              std::int64_t budget, const ReferenceOracle& answer) {
  return CausalElimination(candidates, layer, answer).run(budget);
}

}  // namespace headspan
