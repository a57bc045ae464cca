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

using Key =
    std::tuple<std::int64_t, std::int64_t, std::int64_t>;  // stream, target, head that is not allowed or -1
using Entry = std::tuple<double, std::int64_t, std::int64_t, std::int64_t>;  // cost, layer, stream, head

class CausalElimination {
 public:
  CausalElimination(
      const std::vector<std::vector<std::vector<std::int64_t>>>& candidates,
      const std::vector<std::int64_t>& layer,
      const std::function<std::vector<MetricChoice>(const std::vector<ReferenceQuery>&)>& answer)
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
    for (auto left = static_cast<std::int64_t>(all.size()); left > budget;) {
      const auto [cost, layer, stream, head] = queue.top();
      queue.pop();
      (void)cost;
      (void)layer;
      look_up({{stream, head}});
      const Entry again = entry({stream, head});
      if (!queue.empty() && queue.top() < again) {
        queue.push(again);
      } else if (std::isinf(std::get<0>(again))) {
        return {};
      } else {
        drop({stream, head});
        --left;
      }
    }
    return references();
  }

 private:
  bool is_valid(const StreamHead& head, const MetricChoice& choice) const {
    const auto& own = candidates_[to_size(head.stream)][to_size(head.head)];
    return std::all_of(choice.references.begin(), choice.references.end(), [&](std::int64_t at) {
      return bool(kept_[to_size(head.stream)][to_size(own[to_size(at)])]);
    });
  }

  /// Dropped heads that refer to `head`.
  std::vector<std::int64_t> users(const StreamHead& head) const {
    std::vector<std::int64_t> result;
    const auto& kept = kept_[to_size(head.stream)];
    for (std::size_t t = 0; t < kept.size(); ++t) {
      if (kept[t]) continue;
      const auto& own = candidates_[to_size(head.stream)][t];
      const auto& chosen = chosen_[to_size(head.stream)][t].references;
      if (std::any_of(chosen.begin(), chosen.end(),
                      [&](std::int64_t at) { return own[to_size(at)] == head.head; }))
        result.push_back(static_cast<std::int64_t>(t));
    }
    return result;
  }

  /// The choices that the cost of a head is made of.
  std::vector<Key> keys_of(const StreamHead& head) const {
    std::vector<Key> keys{{head.stream, head.head, -1}};
    for (const std::int64_t user : users(head)) keys.emplace_back(head.stream, user, head.head);
    return keys;
  }

  /// Asks for the choices that these heads' costs need and that are not known, or no longer true: a choice
  /// stays the best until one of its own references is dropped.
  void look_up(const std::vector<StreamHead>& heads) {
    std::vector<Key> keys;
    std::vector<ReferenceQuery> queries;
    for (const StreamHead& head : heads)
      for (const Key& key : keys_of(head)) {
        const auto [stream, target, without] = key;
        const auto known = known_.find(key);
        if (known != known_.end() && is_valid({stream, target}, known->second)) continue;
        ReferenceQuery query{{stream, target}, {}};
        const auto& own = candidates_[to_size(stream)][to_size(target)];
        for (std::size_t at = 0; at < own.size(); ++at)
          if (own[at] != without && kept_[to_size(stream)][to_size(own[at])])
            query.allowed.push_back(static_cast<std::int64_t>(at));
        keys.push_back(key);
        queries.push_back(std::move(query));
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
      for (std::size_t t = 0; t < candidates_[s].size(); ++t)
        if (!kept_[s][t])
          for (const std::int64_t at : chosen_[s][t].references)
            result[s][t].push_back(candidates_[s][t][to_size(at)]);
    }
    return result;
  }

  const std::vector<std::vector<std::vector<std::int64_t>>>& candidates_;
  const std::vector<std::int64_t>& layer_;
  const std::function<std::vector<MetricChoice>(const std::vector<ReferenceQuery>&)>& answer_;
  std::vector<std::vector<bool>> kept_;
  std::vector<std::vector<MetricChoice>> chosen_;  // of dropped heads
  std::map<Key, MetricChoice> known_;
};

}  // namespace

References eliminate_causally(
    const std::vector<std::vector<std::vector<std::int64_t>>>& candidates,
    const std::vector<std::int64_t>& layer, std::int64_t budget,
    const std::function<std::vector<MetricChoice>(const std::vector<ReferenceQuery>&)>& answer) {
  return CausalElimination(candidates, layer, answer).run(budget);
}

}  // namespace headspan
