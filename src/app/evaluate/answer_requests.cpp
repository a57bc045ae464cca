#include "app/evaluate/answer_requests.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "app/evaluate/score_texts.h"
#include "app/run/run_clock.h"
#include "dist/comm/agreement.h"
#include "model/forward/inference.h"

namespace headspan {
namespace {

/// Returns the lines of the answers to a batch, on the tensor-parallel root only. Throws InputError on all
/// ranks of the row. Collective over the row.
using AnswerBatch = std::function<std::vector<std::string>(const std::vector<std::size_t>& requests)>;

/// Runs batches of sequences of similar length, one per row in each round, until every request has an answer.
void answer_in_rounds(const ProcessLayout& processes, const std::vector<std::int64_t>& lengths,
                      const std::optional<std::int64_t>& batch, std::size_t first, AnswerFile& answers,
                      const AnswerBatch& run) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < lengths.size(); ++i)
    if (!answers.has(first + i)) order.push_back(i);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return lengths[a] > lengths[b]; });
  const auto rows = static_cast<std::size_t>(processes.data().size()),
             row = static_cast<std::size_t>(processes.data().rank());
  for (std::size_t begin = 0; begin < order.size();) {
    stop_where_asked(processes.group());
    const std::size_t count = static_cast<std::size_t>(batch_sequences(batch, lengths[order[begin]])),
                      end = std::min(order.size(), begin + count * rows);
    std::vector<std::size_t> mine, numbers;
    for (std::size_t i = begin + row; i < end; i += rows) mine.push_back(order[i]);
    std::vector<std::string> lines;
    std::optional<InputError> wrong;
    try {
      if (!mine.empty()) lines = run(mine);
    } catch (const InputError& e) {
      wrong = e;
    }
    agree(processes.group(), [&] {
      if (wrong) throw InputError(*wrong);
    });
    if (processes.tensor().is_root())
      for (const std::size_t i : mine) numbers.push_back(first + i);
    answers.add(numbers, lines);
    begin = end;
  }
}

/// A sequence that is being continued.
class Continuation {
 public:
  explicit Continuation(const GenerationRequest& request) : request_(&request) {
    done_ = request.max_new_tokens == 0;
  }

  bool done() const { return done_; }
  const std::vector<std::int64_t>& tokens() const { return tokens_; }

  /// Appends a token. A stop sequence ends the continuation and is removed from it.
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
    cache->end_prompts();
    for (std::size_t s = 0; s < next.size(); ++s) {
      fresh[s].clear();
      if (continuations[s].done()) continue;
      if (next[s] == kNotFinite) throw model.overflow("request " + requests[s]->id);
      continuations[s].add(next[s]);
      if (!continuations[s].done()) fresh[s] = {next[s]};
    }
  }
  return continuations;
}

}  // namespace

void answer(const CachedModel& model, CacheKind kind, const std::vector<ScoredRequest>& requests,
            const std::optional<std::int64_t>& batch, std::size_t first, AnswerFile& answers) {
  std::vector<std::int64_t> lengths;
  lengths.reserve(requests.size());
  for (const ScoredRequest& request : requests)
    lengths.push_back(static_cast<std::int64_t>(request.context.size() + request.continuation.size()));
  answer_in_rounds(
      model.processes(), lengths, batch, first, answers, [&](const std::vector<std::size_t>& numbers) {
        std::vector<std::vector<std::int64_t>> sequences;
        std::vector<std::int64_t> from;
        for (const std::size_t i : numbers) {
          sequences.push_back(requests[i].context);
          from.push_back(static_cast<std::int64_t>(requests[i].context.size()));
          sequences.back().insert(sequences.back().end(), requests[i].continuation.begin(),
                                  requests[i].continuation.end());
        }
        const auto cache = model.make_cache(kind, sequences.size());
        const std::vector<Scores> scores = model.exact_prefill()
                                               ? score_continuations(model.model(), sequences, from, *cache)
                                               : score(model.model(), sequences, from, *cache, {});
        std::vector<std::string> lines;
        for (std::size_t i = 0; i < numbers.size(); ++i) {
          const auto& scored = scores[i];
          const double likelihood =
              std::accumulate(scored.log_probability.begin(), scored.log_probability.end(), 0.0);
          if (!std::isfinite(likelihood)) throw model.overflow("request " + requests[numbers[i]].id);
          if (model.processes().tensor().is_root())
            lines.push_back(answer_line(requests[numbers[i]], likelihood,
                                        std::count(scored.greedy.begin(), scored.greedy.end(), 0) == 0));
        }
        return lines;
      });
}

void answer(const CachedModel& model, CacheKind kind, const std::vector<GenerationRequest>& requests,
            const std::optional<std::int64_t>& batch, std::size_t first, AnswerFile& answers) {
  std::vector<std::int64_t> lengths;
  lengths.reserve(requests.size());
  for (const GenerationRequest& request : requests)
    lengths.push_back(static_cast<std::int64_t>(request.context.size()) + request.max_new_tokens);
  answer_in_rounds(model.processes(), lengths, batch, first, answers,
                   [&](const std::vector<std::size_t>& numbers) {
                     std::vector<const GenerationRequest*> asked;
                     asked.reserve(numbers.size());
                     for (const std::size_t i : numbers) asked.push_back(&requests[i]);
                     const std::vector<Continuation> continuations = generate(model, kind, asked);
                     std::vector<std::string> lines;
                     for (std::size_t i = 0; i < numbers.size() && model.processes().tensor().is_root(); ++i)
                       lines.push_back(answer_line(*asked[i], continuations[i].tokens()));
                     return lines;
                   });
}

}  // namespace headspan
