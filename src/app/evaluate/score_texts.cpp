#include "app/evaluate/score_texts.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <tuple>

#include "app/run/run_clock.h"
#include "base/progress.h"
#include "dist/comm/agreement.h"
#include "model/forward/inference.h"

namespace headspan {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

/// Sums over the predicted tokens of each sequence: [sequences] each.
struct Sums {
  std::vector<double> tokens, loss, full_loss, kl;
};

/// Returns the sum of the values over the sum of the counts, and its standard error, estimated from the
/// sequences whose count is not 0. NaN if there are too few sequences.
std::pair<double, double> ratio(const std::vector<double>& values, const std::vector<double>& counts) {
  const double total = std::accumulate(counts.begin(), counts.end(), 0.0);
  if (total == 0) return {kNan, kNan};
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / total;
  const auto n =
      static_cast<double>(std::count_if(counts.begin(), counts.end(), [](double c) { return c > 0; }));
  double squares = 0;
  for (std::size_t s = 0; s < values.size(); ++s) squares += std::pow(values[s] - mean * counts[s], 2);
  return {mean, n > 1 ? std::sqrt(squares * n / (n - 1)) / total : kNan};
}

/// Scores a batch of the row's sequences. Collective over the row.
void score_batch(const CachedModel& model, CacheKind kind, bool reference, const Sample& sample,
                 const std::vector<std::size_t>& numbers, Sums& sums) {
  std::vector<std::vector<std::int64_t>> tokens;
  tokens.reserve(numbers.size());
  for (const std::size_t s : numbers) tokens.push_back(sample.tokens[s]);
  HiddenStates full;
  std::unique_ptr<KvCache> cache;
  std::unique_ptr<RereadableCache> read_twice =
      kind == CacheKind::compressed ? model.make_rereadable(tokens.size()) : nullptr;
  if (read_twice) {
    full = hidden_states(model.model(), tokens, *read_twice);
    if (!reference) full.clear();
    read_twice->read_again();
    cache = std::move(read_twice);
  } else {
    if (reference)
      full = hidden_states(model.model(), tokens, *model.make_cache(CacheKind::full, tokens.size()));
    cache = model.make_cache(kind, tokens.size());
  }
  const std::vector<Scores> scores =
      score(model.model(), tokens, std::vector<std::int64_t>(tokens.size(), 1), *cache, full);
  if (!model.processes().tensor().is_root()) return;
  const auto sum = [](const std::vector<double>& x) { return std::accumulate(x.begin(), x.end(), 0.0); };
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const std::size_t s = numbers[i];
    sums.tokens[s] = static_cast<double>(scores[i].log_probability.size());
    sums.loss[s] = -sum(scores[i].log_probability);
    sums.full_loss[s] = -sum(scores[i].reference);
    sums.kl[s] = sum(scores[i].divergence);
  }
}

}  // namespace

TextScore score_text(const CachedModel& model, const Job::Evaluate& rule, const Text& text, const Log& log) {
  const ProcessLayout& processes = model.processes();
  const Sample& sample = text.sample;
  const CacheKind kind = rule.cache;
  const bool reference = rule.reference && kind != CacheKind::full;
  const std::size_t count = sample.sequences.size();
  std::int64_t longest = 0;
  for (const Sequence& sequence : sample.sequences) longest = std::max(longest, sequence.length);
  const std::int64_t batch = batch_sequences(rule.batch, longest);
  Progress progress(log, "score", "tokens", sample.total(), {{"text", text.name}});
  Sums sums{std::vector<double>(count), std::vector<double>(count), std::vector<double>(count),
            std::vector<double>(count)};
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return sample.sequences[a].length > sample.sequences[b].length;
  });
  const auto rows = static_cast<std::size_t>(processes.data().size()),
             row = static_cast<std::size_t>(processes.data().rank());
  for (std::size_t first = 0; first < count; first += static_cast<std::size_t>(batch) * rows) {
    stop_where_asked(processes.group());
    std::vector<std::size_t> mine;
    std::int64_t tokens = 0;
    for (std::size_t i = first; i < std::min(count, first + static_cast<std::size_t>(batch) * rows); ++i) {
      if ((i - first) % rows == row) mine.push_back(order[i]);
      tokens += sample.sequences[order[i]].length;
    }
    if (!mine.empty()) score_batch(model, kind, reference, sample, mine, sums);
    progress.advance(tokens);
  }
  for (std::vector<double>* values : {&sums.tokens, &sums.loss, &sums.full_loss, &sums.kl})
    processes.group().sum(values->data(), static_cast<std::int64_t>(count));
  agree(processes.group(), [&] {
    for (const std::vector<double>* values : {&sums.loss, &sums.full_loss, &sums.kl})
      if (!std::all_of(values->begin(), values->end(), [](double x) { return std::isfinite(x); }))
        throw model.overflow("text " + text.name);
  });
  TextScore score;
  score.tokens = static_cast<std::int64_t>(std::accumulate(sums.tokens.begin(), sums.tokens.end(), 0.0));
  std::tie(score.loss, score.loss_se) = ratio(sums.loss, sums.tokens);
  std::tie(score.full_loss, std::ignore) = ratio(sums.full_loss, sums.tokens);
  std::tie(score.kl, score.kl_se) = ratio(sums.kl, sums.tokens);
  std::vector<double> difference(count);
  std::transform(sums.loss.begin(), sums.loss.end(), sums.full_loss.begin(), difference.begin(),
                 std::minus<>());
  std::tie(score.dloss, score.dloss_se) = ratio(difference, sums.tokens);
  if (!reference) score.full_loss = score.dloss = score.dloss_se = score.kl = score.kl_se = kNan;
  return score;
}

std::int64_t batch_sequences(const std::optional<std::int64_t>& asked, std::int64_t longest) {
  constexpr std::int64_t kTokens = 4096;
  return asked.value_or(std::clamp<std::int64_t>(kTokens / std::max<std::int64_t>(1, longest), 1, 64));
}

}  // namespace headspan
