#include "app/answer_requests.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "app/score_texts.h"
#include "model/inference.h"

namespace headspan {
namespace {

/// Calls `run` with batches of request numbers, of sequences of similar length, those of this row only.
void for_each_batch(const Team& team, const std::vector<std::int64_t>& lengths,
                    const std::optional<std::int64_t>& batch,
                    const std::function<void(const std::vector<std::size_t>&)>& run) {
  std::vector<std::size_t> order(lengths.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return lengths[a] > lengths[b]; });
  std::vector<std::size_t> mine;
  const auto rows = static_cast<std::size_t>(team.data().size()),
             row = static_cast<std::size_t>(team.data().rank());
  for (std::size_t i = row; i < order.size(); i += rows) {
    mine.push_back(order[i]);
    const std::int64_t most = batch_sequences(batch, lengths[mine.front()]);
    if (static_cast<std::int64_t>(mine.size()) < most) continue;
    run(mine);
    mine.clear();
  }
  if (!mine.empty()) run(mine);
}

/// Of one sequence that is being continued.
class Continuation {
 public:
  explicit Continuation(const GenerationRequest& request) : request_(&request) {
    done_ = request.max_new_tokens == 0;
  }

  bool done() const { return done_; }
  const std::vector<std::int64_t>& tokens() const { return tokens_; }

  /// A stop sequence ends the continuation and is not part of it.
  void add(std::int64_t token) {
    tokens_.push_back(token);
    for (const auto& stop : request_->stop)
      if (stop.size() <= tokens_.size() && std::equal(stop.rbegin(), stop.rend(), tokens_.rbegin())) {
        tokens_.resize(tokens_.size() - stop.size());
        done_ = true;
        return;
      }
    done_ = static_cast<std::int64_t>(tokens_.size()) >= request_->max_new_tokens;
  }

 private:
  const GenerationRequest* request_;
  std::vector<std::int64_t> tokens_;
  bool done_;
};

/// Continues a batch greedily. Collective over the row.
std::vector<Continuation> generate(const CachedModel& model, CacheKind kind,
                                   const std::vector<const GenerationRequest*>& requests) {
  std::vector<Continuation> continuations;
  std::vector<std::vector<std::int64_t>> fresh;
  for (const GenerationRequest* request : requests) {
    continuations.emplace_back(*request);
    fresh.push_back(continuations.back().done() ? std::vector<std::int64_t>() : request->context);
  }
  const auto cache = model.make_cache(kind, requests.size());
  const auto any_left = [&] {
    return std::any_of(continuations.begin(), continuations.end(), [](const auto& c) { return !c.done(); });
  };
  while (any_left()) {
    const std::vector<std::int64_t> next = next_tokens(model.model(), fresh, *cache);
    for (std::size_t s = 0; s < next.size(); ++s) {
      fresh[s].clear();
      if (continuations[s].done()) continue;
      continuations[s].add(next[s]);
      if (!continuations[s].done()) fresh[s] = {next[s]};
    }
  }
  return continuations;
}

}  // namespace

std::string answer(const CachedModel& model, CacheKind kind, const std::vector<ScoredRequest>& requests,
                   const std::optional<std::int64_t>& batch) {
  std::vector<std::int64_t> lengths;
  for (const ScoredRequest& request : requests)
    lengths.push_back(static_cast<std::int64_t>(request.context.size() + request.continuation.size()));
  std::vector<double> likelihood(requests.size()), missed(requests.size());
  for_each_batch(model.team(), lengths, batch, [&](const std::vector<std::size_t>& numbers) {
    std::vector<std::vector<std::int64_t>> sequences;
    std::vector<std::int64_t> from;
    for (const std::size_t i : numbers) {
      sequences.push_back(requests[i].context);
      from.push_back(static_cast<std::int64_t>(requests[i].context.size()));
      sequences.back().insert(sequences.back().end(), requests[i].continuation.begin(),
                              requests[i].continuation.end());
    }
    const auto cache = model.make_cache(kind, sequences.size());
    const std::vector<Scores> scores = score(model.model(), sequences, from, *cache, nullptr);
    if (!model.team().tensor().is_root()) return;
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      const auto& own = scores[i];
      likelihood[numbers[i]] = std::accumulate(own.log_probability.begin(), own.log_probability.end(), 0.0);
      missed[numbers[i]] = static_cast<double>(std::count(own.greedy.begin(), own.greedy.end(), 0));
    }
  });
  const auto count = static_cast<std::int64_t>(requests.size());
  model.team().group().sum(likelihood.data(), count);
  model.team().group().sum(missed.data(), count);
  std::string lines;
  for (std::size_t i = 0; i < requests.size(); ++i)
    lines += answer_line(requests[i], likelihood[i], missed[i] == 0);
  return lines;
}

std::string answer(const CachedModel& model, CacheKind kind, const std::vector<GenerationRequest>& requests,
                   const std::optional<std::int64_t>& batch) {
  std::vector<std::int64_t> lengths;
  for (const GenerationRequest& request : requests)
    lengths.push_back(static_cast<std::int64_t>(request.context.size()) + request.max_new_tokens);
  std::vector<std::int64_t> own;  // number of the request, number of tokens, tokens; and so on
  for_each_batch(model.team(), lengths, batch, [&](const std::vector<std::size_t>& numbers) {
    std::vector<const GenerationRequest*> asked;
    for (const std::size_t i : numbers) asked.push_back(&requests[i]);
    const std::vector<Continuation> continuations = generate(model, kind, asked);
    if (!model.team().tensor().is_root()) return;
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      const auto& tokens = continuations[i].tokens();
      own.push_back(static_cast<std::int64_t>(numbers[i]));
      own.push_back(static_cast<std::int64_t>(tokens.size()));
      own.insert(own.end(), tokens.begin(), tokens.end());
    }
  });
  std::vector<std::vector<std::int64_t>> send(static_cast<std::size_t>(model.team().group().size()));
  send[0] = std::move(own);
  std::vector<std::string> lines(requests.size());
  for (const auto& part : model.team().group().exchange(send))
    for (auto at = part.begin(); at != part.end();) {
      const auto number = static_cast<std::size_t>(*at);
      const auto first = at + 2, last = first + *(at + 1);
      lines[number] = answer_line(requests[number], {first, last});
      at = last;
    }
  return std::accumulate(lines.begin(), lines.end(), std::string());
}

}  // namespace headspan
