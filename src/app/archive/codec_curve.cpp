#include "app/archive/codec_curve.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "app/run/run_clock.h"
#include "base/checked.h"
#include "model/forward/inference.h"

namespace headspan {
namespace {

constexpr std::int64_t kTokens = 2048;  // of the sequences, at most
constexpr int kBetween = 12;            // from point to point: three quarters of an octave
constexpr int kBetweenRuns = 4;         // the same, of divisions into runs
constexpr double kMostBits = 8, kLeastBits = 0.25;
constexpr int kFinest = -40 * kPerOctave, kCoarsest = 40 * kPerOctave;

/// Returns the mean of log2(deviation / step) over coefficients, by columns, where it is positive: a lower
/// bound of the bits.
double expected_bits(const KvCodec& codec, int step) {
  double bits = 0, columns = 0;
  for (const auto& [stream, groups] : codec.streams)
    for (const CodecGroup& group : groups) {
      for (const std::int16_t deviation : group.deviations)
        bits += std::max(0, deviation - step) / static_cast<double>(kPerOctave) / kTokenClasses;
      columns += static_cast<double>(codec.columns(group));
    }
  return bits / columns;
}

/// Returns the coarsest step that is measured.
int coarsest_step(const KvCodec& codec) {
  int largest = kFinest;
  for (const auto& [stream, groups] : codec.streams)
    for (const CodecGroup& group : groups)
      largest = std::max<int>(largest, *std::max_element(group.deviations.begin(), group.deviations.end()));
  for (int step = std::min(largest, kCoarsest); step > kFinest; step -= kBetween)
    if (expected_bits(codec, step) >= kLeastBits / 40) return step;
  return largest;
}

/// Returns the steps that are measured, descending, as long as they make sense.
std::vector<int> descending_steps(const KvCodec& codec) {
  const auto divisions = static_cast<int>(codec.streams.at(Stream::k).front().runs.size());
  std::vector<int> steps;
  if (codec.has_runs())
    for (int step = divisions - 1; step >= 0; step -= kBetweenRuns) steps.push_back(step);
  else
    for (int step = coarsest_step(codec); step >= kFinest; step -= kBetween) steps.push_back(step);
  return steps;
}

class CurveMeter {
 public:
  CurveMeter(const CachedModel& model, const Sample& sample, Recoder& recoder)
      : model_(model), recoder_(recoder) {
    std::int64_t taken = 0;
    for (std::size_t s = 0; s < sample.sequences.size() && taken < kTokens; ++s) {
      const std::int64_t length = sample.sequences[s].length;
      if ((sample.heldout[s] != 0) != sample.has_heldout() || length <= recoder.codec().exact_first + 1)
        continue;
      sequences_.push_back(sample.tokens[s]);
      taken += length;
    }
    if (sequences_.empty())
      throw InputError("", "tokens.sequence_length", "",
                       "leaves no sequence long enough to measure a codec with",
                       "give longer texts, or more tokens");
    cache_ = model_.make_rereadable(sequences_.size());
    exact_ = hidden_states(model_.model(), sequences_, *cache_);
  }

  std::vector<RatePoint> measure() {
    std::vector<RatePoint> points;
    for (const int step : descending_steps(recoder_.codec())) {
      stop_where_asked(model_.processes().group());
      const std::optional<RatePoint> point = measure(step);
      if (!point) break;
      const bool follows =
          points.empty() || (point->bits > points.back().bits && point->kl < points.back().kl);
      if (follows && point->kl > 0) points.push_back(*point);
      if (point->bits > kMostBits) break;
    }
    std::reverse(points.begin(), points.end());
    if (points.size() < 2)
      throw InputError("", "archive.codec", "", "would code nothing: keys and values do not vary", "");
    return points;
  }

 private:
  /// Returns nothing if the step is too small for the codec. Collective.
  std::optional<RatePoint> measure(int step) {
    recoder_.set_step(step);
    try {
      cache_->read_again();
    } catch (const InputError&) {
      return std::nullopt;  // on every rank, because all code the same numbers
    }
    const std::vector<std::int64_t> from(sequences_.size(), 1);
    double sum = 0, tokens = 0;
    for (const Scores& scores : score(model_.model(), sequences_, from, *cache_, exact_)) {
      sum = std::accumulate(scores.divergence.begin(), scores.divergence.end(), sum);
      tokens += static_cast<double>(scores.divergence.size());
    }
    RatePoint point{step, 8 * recoder_.coded_bytes() / recoder_.coded_numbers(), sum / tokens};
    model_.processes().group().broadcast(&point.kl, 1, 0);  // the bits are the same anyway
    return point;
  }

  const CachedModel& model_;
  Recoder& recoder_;
  std::vector<std::vector<std::int64_t>> sequences_;
  std::unique_ptr<RereadableCache> cache_;
  HiddenStates exact_;  // of the first reading
};

}  // namespace

std::vector<RatePoint> measure_curve(const CachedModel& model, const Sample& sample, Recoder& recoder) {
  return CurveMeter(model, sample, recoder).measure();
}

}  // namespace headspan
