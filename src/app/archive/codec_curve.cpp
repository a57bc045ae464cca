#include "app/archive/codec_curve.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "app/run/run_clock.h"
#include "base/checked.h"
#include "io/archive/kv_coder.h"
#include "model/cache/document_starts.h"
#include "model/forward/inference.h"

namespace headspan {
namespace {

constexpr std::int64_t kTokens = 4096;           // of the sequences, at most
constexpr int kBetween = 12;                     // from point to point: three quarters of an octave
constexpr double kMostBits = 8, kLeastBits = 0.25;
constexpr int kFinest = -40 * kPerOctave, kCoarsest = 40 * kPerOctave;

/// Codes and decodes prompts, and counts the bytes.
class Recoder {
 public:
  Recoder(const KvCoder& coder, int step, const std::vector<std::int64_t>& document_ends)
      : coder_(coder), step_(step), document_ends_(document_ends) {}

  void operator()(const std::vector<std::int64_t>& ids, std::vector<float>& k, std::vector<float>& v) {
    const std::vector<std::int64_t> coded = coded_tokens(ids);
    const auto tokens = static_cast<std::int64_t>(ids.size());
    for (std::size_t first = 0; first < coded.size(); first += to_size(kBlockTokens)) {
      const std::size_t last = std::min(first + to_size(kBlockTokens), coded.size());
      recode({coded.begin() + static_cast<std::ptrdiff_t>(first), coded.begin() + static_cast<std::ptrdiff_t>(last)},
             tokens, k, v);
    }
  }

  /// Bits of a number that was coded.
  double bits() const { return 8 * bytes_ / numbers_; }

 private:
  /// Returns the tokens behind the first ones of each document.
  std::vector<std::int64_t> coded_tokens(const std::vector<std::int64_t>& ids) const {
    const auto tokens = static_cast<std::int64_t>(ids.size());
    DocumentStarts starts(1, coder_.codec().exact_first, document_ends_);
    starts.follow(ids, {tokens});
    const std::vector<std::int64_t>& exact = starts.positions(0);
    std::vector<std::int64_t> coded;
    for (std::int64_t t = coder_.codec().exact_first; t < tokens; ++t)
      if (!std::binary_search(exact.begin(), exact.end(), t)) coded.push_back(t);
    return coded;
  }

  void recode(const std::vector<std::int64_t>& chunk, std::int64_t tokens, std::vector<float>& k,
              std::vector<float>& v) {
    const KvCodec& codec = coder_.codec();
    const std::int64_t width = codec.kv_heads * codec.head_size;
    const auto row = [&](Stream stream, std::int64_t layer, std::int64_t token) {
      return &(stream == Stream::k ? k : v)[to_size((layer * tokens + token) * width)];
    };
    const auto read = [&](Stream stream, std::int64_t layer, const auto& wanted, float* to) {
      for (const std::int64_t token : wanted) to = std::copy_n(row(stream, layer, token), width, to);
    };
    const auto take = [&](Stream stream, std::int64_t layer, const auto& of_chunk, const float* values) {
      for (const std::int64_t token : of_chunk) {
        std::copy_n(values, width, row(stream, layer, token));
        values += width;
      }
    };
    const auto blocks = coder_.encode(chunk, chunk, step_, read);
    for (std::size_t b = 0; b < blocks.size(); ++b) {
      coder_.decode(static_cast<std::int64_t>(b), blocks[b], chunk, chunk, step_, {0, codec.layers}, take);
      bytes_ += static_cast<double>(blocks[b].size());
    }
    numbers_ += 2. * static_cast<double>(codec.layers * width) * static_cast<double>(chunk.size());
  }

  const KvCoder& coder_;
  int step_;
  const std::vector<std::int64_t>& document_ends_;
  double bytes_ = 0, numbers_ = 0;
};

class CurveMeter {
 public:
  CurveMeter(const CachedModel& model, const Sample& sample, const KvCodec& codec,
             const std::vector<std::int64_t>& document_ends)
      : model_(model), coder_(codec), document_ends_(document_ends) {
    std::int64_t taken = 0;
    for (std::size_t s = 0; s < sample.sequences.size() && taken < kTokens; ++s) {
      const std::int64_t length = sample.sequences[s].length, half = length / 2;
      if ((sample.heldout[s] != 0) != sample.has_heldout() || half <= codec.exact_first + 1) continue;
      sequences_.push_back(sample.tokens[s]);
      from_.push_back(half);
      taken += length;
    }
    if (sequences_.empty())
      throw InputError("", "tokens.sequence_length", "", "leaves no sequence long enough to measure a codec with",
                       "give longer texts, or more tokens");
    const auto full = model_.make_cache(CacheKind::full, sequences_.size());
    reference_ = continuation_states(model_.model(), sequences_, from_, *full);
  }

  std::vector<RatePoint> measure() {
    std::vector<RatePoint> points;
    for (int step = coarsest(); step >= kFinest; step -= kBetween) {
      stop_where_asked(model_.processes().group());
      const std::optional<RatePoint> point = measure(step);
      if (!point) break;  // finer than the codec's models go
      const bool follows = points.empty() || (point->bits > points.back().bits && point->kl < points.back().kl);
      if (follows && point->kl > 0) points.push_back(*point);
      if (point->bits > kMostBits) break;
    }
    std::reverse(points.begin(), points.end());
    if (points.size() < 2)
      throw InputError("", "archive.codec", "", "would code nothing: keys and values do not vary", "");
    return points;
  }

 private:
  /// Returns the coarsest step that is measured: one that spends little on the largest coefficients.
  int coarsest() const {
    int largest = kFinest;
    for (const auto& [stream, groups] : coder_.codec().streams)
      for (const CodecGroup& group : groups)
        largest = std::max<int>(largest, *std::max_element(group.deviations.begin(), group.deviations.end()));
    for (int step = std::min(largest, kCoarsest); step > kFinest; step -= kBetween)
      if (const std::optional<double> bits = expected_bits(step); bits && *bits >= kLeastBits) return step + kBetween;
    return largest;
  }

  /// Returns the mean of log2(deviation / step) over coefficients, by columns, where it is positive: a lower
  /// bound of the bits. Nothing if the step is too small.
  std::optional<double> expected_bits(int step) const {
    double bits = 0, columns = 0;
    for (const auto& [stream, groups] : coder_.codec().streams)
      for (const CodecGroup& group : groups) {
        for (const std::int16_t deviation : group.deviations)
          bits += std::max(0, deviation - step) / static_cast<double>(kPerOctave) / kTokenClasses;
        columns += static_cast<double>(coder_.codec().columns(group));
      }
    return bits / columns;
  }

  /// Returns nothing if the step is too small for the codec. Collective.
  std::optional<RatePoint> measure(int step) {
    Recoder recoder(coder_, step, document_ends_);
    const auto cache = model_.make_recoded(sequences_.size(), [&](const auto& ids, auto& k, auto& v) { recoder(ids, k, v); });
    std::vector<Scores> scores;
    try {
      scores = score_continuations(model_.model(), sequences_, from_, *cache, reference_);
    } catch (const InputError&) {
      return std::nullopt;  // on every rank, because all code the same numbers
    }
    double sum = 0, tokens = 0;
    for (std::size_t s = 0; s < scores.size(); ++s) {
      sum = std::accumulate(scores[s].divergence.begin(), scores[s].divergence.end(), sum);
      tokens += static_cast<double>(scores[s].divergence.size());
    }
    RatePoint point{step, recoder.bits(), sum / tokens};
    model_.processes().group().broadcast(&point.kl, 1, 0);  // the bits are the same anyway
    return point;
  }

  const CachedModel& model_;
  KvCoder coder_;
  const std::vector<std::int64_t>& document_ends_;
  std::vector<std::vector<std::int64_t>> sequences_;
  std::vector<std::int64_t> from_;
  HiddenStates reference_;
};

}  // namespace

std::vector<RatePoint> measure_curve(const CachedModel& model, const Sample& sample, const KvCodec& codec,
                                     const std::vector<std::int64_t>& document_ends) {
  return CurveMeter(model, sample, codec, document_ends).measure();
}

}  // namespace headspan
