#include "app/archive/codec_statistics.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/checked.h"
#include "io/archive/level_models.h"

namespace headspan {
namespace {

constexpr std::int64_t kEnergyColumns = 256;  // whose squares tell a token's class, at most
constexpr std::int64_t kEdgeTokens = 4096;    // that the edges of classes are found on, at most
constexpr double kPriorTokens = 16;           // that a class is given with the deviations of all tokens
constexpr double kLeastDeviation = -1024;     // in sixteenths of an octave; where nothing varies
/// Shares of the tokens below the edges of classes: the last ones are for what lies far out.
constexpr std::array<double, kTokenClasses - 1> kShares{0.1, 0.25, 0.45, 0.65, 0.85, 0.95, 0.99};

/// One group, and what is summed of it.
struct GroupWork {
  CodecGroup* group;
  std::vector<double> variances;  // [n], of all coefficients of some tokens
  std::vector<float> energies;    // of tokens of this rank
  std::vector<double> squares;    // [kTokenClasses, n], summed over the tokens
  std::array<double, kTokenClasses> tokens{};

  std::int64_t n() const { return group->coefficients(); }
  double* squares_of(int c) { return &squares[to_size(c * n())]; }
};

class StatisticsFitter {
 public:
  StatisticsFitter(const Transformer& model, const CodecTokens& tokens, const ProcessLayout& processes,
                   KvCodec& codec)
      : has_heldout_(tokens.sample.has_heldout()),
        processes_(processes),
        codec_(codec),
        coefficients_(model, tokens, processes, codec) {}

  void run() {
    for (auto& [stream, groups] : codec_.streams)
      for (CodecGroup& group : groups) works_.push_back({&group, {}, {}, {}});
    for (GroupWork& work : works_) prepare(work);
    for_tokens(false, kEdgeTokens, add_variances);
    for (GroupWork& work : works_) set_weights(work);
    for_tokens(false, kEdgeTokens, [&](GroupWork& work, const GroupCoder& coder, const auto& coefficients) {
      for (std::size_t first = 0; first < coefficients.size(); first += to_size(work.n()))
        work.energies.push_back(coder.energy(&coefficients[first]));
    });
    for (GroupWork& work : works_) set_edges(work);
    for_tokens(false, INT64_MAX, add_squares);
    for (GroupWork& work : works_) set_deviations(work);
    set_models();
  }

 private:
  /// See CodecCoefficients. Collective.
  template <class Use>
  void for_tokens(bool heldout, std::int64_t most, const Use& use) {
    coefficients_.for_tokens(heldout, most, [&](std::size_t g, const GroupCoder& coder, const auto& found) {
      use(works_[g], coder, found);
    });
  }

  static void prepare(GroupWork& work) {
    CodecGroup& group = *work.group;
    work.variances.assign(to_size(work.n()), 0);
    work.squares.assign(to_size(kTokenClasses * work.n()), 0);
    group.class_weights.assign(to_size(work.n()), 0);
    group.class_edges.assign(kTokenClasses - 1, 0);
    group.deviations.assign(to_size(kTokenClasses * work.n()), 0);
  }

  static void add_variances(GroupWork& work, const GroupCoder&, const std::vector<float>& coefficients) {
    for (std::size_t k = 0; k < coefficients.size(); ++k)
      work.variances[k % to_size(work.n())] +=
          static_cast<double>(coefficients[k]) * static_cast<double>(coefficients[k]);
    work.tokens[0] += static_cast<double>(coefficients.size()) / static_cast<double>(work.n());
  }

  /// The variances are those that coefficients have, not those of the Gram: in a basis rounded to 8 bits the
  /// small ones have some of the large ones in them. Collective.
  void set_weights(GroupWork& work) const {
    processes_.group().sum(work.variances.data(), work.n());
    processes_.group().sum(work.tokens.data(), kTokenClasses);
    for (double& variance : work.variances) variance /= std::max(1.0, work.tokens[0]);
    work.tokens.fill(0);
    for (std::int64_t j = 0; j < std::min(work.n(), kEnergyColumns); ++j)
      if (const double variance = work.variances[to_size(j)]; variance > 0)
        work.group->class_weights[to_size(j)] = static_cast<float>(1 / variance);
  }

  /// Collective.
  void set_edges(GroupWork& work) const {
    std::vector<float> all;
    for (const auto& of_rank : processes_.group().gather(std::move(work.energies)))
      all.insert(all.end(), of_rank.begin(), of_rank.end());
    std::sort(all.begin(), all.end());
    for (std::size_t c = 0; c < kShares.size() && !all.empty(); ++c)
      work.group->class_edges[c] = all[std::min(
          all.size() - 1, static_cast<std::size_t>(kShares[c] * static_cast<double>(all.size())))];
    processes_.group().broadcast(work.group->class_edges.data(), kTokenClasses - 1, 0);
  }

  static void add_squares(GroupWork& work, const GroupCoder& coder, const std::vector<float>& coefficients) {
    const std::int64_t n = work.n();
    for (std::size_t first = 0; first < coefficients.size(); first += to_size(n)) {
      const float* const of_token = &coefficients[first];
      const int c = coder.class_of(of_token);
      double* const squares = work.squares_of(c);
      for (std::int64_t j = 0; j < n; ++j)
        squares[j] += static_cast<double>(of_token[j]) * static_cast<double>(of_token[j]);
      ++work.tokens[to_size(c)];
    }
  }

  /// A class with few tokens takes the deviations of all tokens, by as much as it is larger altogether.
  /// Collective.
  void set_deviations(GroupWork& work) const {
    processes_.group().sum(work.squares.data(), static_cast<std::int64_t>(work.squares.size()));
    processes_.group().sum(work.tokens.data(), kTokenClasses);
    const std::int64_t n = work.n();
    double share =
        1;  // of a class's squares in those of all tokens; of an empty class, that of the one before
    for (int c = 0; c < kTokenClasses; ++c) {
      const double count = work.tokens[to_size(c)];
      double sum = 0;
      for (std::int64_t j = 0; j < n; ++j)
        if (const double variance = work.variances[to_size(j)]; variance > 0)
          sum += work.squares_of(c)[j] / variance;
      if (count > 0 && sum > 0) share = sum / (count * static_cast<double>(n));
      for (std::int64_t j = 0; j < n; ++j) {
        const double square = (work.squares_of(c)[j] + kPriorTokens * share * work.variances[to_size(j)]) /
                              (count + kPriorTokens);
        const double deviation = square > 0 ? kPerOctave * std::log2(square) / 2 : kLeastDeviation;
        work.group->deviations[to_size(c * n + j)] =
            static_cast<std::int16_t>(std::lround(std::clamp(deviation, kLeastDeviation, -kLeastDeviation)));
      }
    }
  }

  /// Collective.
  void set_models() {
    std::vector<double> shape(kShapeBins + 1);
    for_tokens(has_heldout_, INT64_MAX,
               [&](GroupWork& work, const GroupCoder& coder, const auto& coefficients) {
                 add_shape(work, coder, coefficients, shape);
               });
    processes_.group().sum(shape.data(), kShapeBins + 1);
    codec_.lowest_deviation = kLowestDeviation;
    codec_.models = make_level_models(shape);
  }

  static void add_shape(const GroupWork& work, const GroupCoder& coder,
                        const std::vector<float>& coefficients, std::vector<double>& shape) {
    const std::int64_t n = work.n();
    std::vector<float> per_deviation;
    for (const std::int16_t deviation : work.group->deviations)
      per_deviation.push_back(std::exp2(-static_cast<float>(deviation) / kPerOctave) * kBinsPerDeviation);
    for (std::size_t first = 0; first < coefficients.size(); first += to_size(n)) {
      const float* const of_token = &coefficients[first];
      const float* const scales = &per_deviation[to_size(coder.class_of(of_token) * n)];
      for (std::int64_t j = 0; j < n; ++j) {
        const float bin = std::min(std::abs(of_token[j]) * scales[j], static_cast<float>(kShapeBins));
        if (std::isfinite(bin)) ++shape[static_cast<std::size_t>(bin)];
      }
    }
  }

  bool has_heldout_;
  const ProcessLayout& processes_;
  KvCodec& codec_;
  CodecCoefficients coefficients_;
  std::vector<GroupWork> works_;
};

}  // namespace

void set_statistics(const Transformer& model, const CodecTokens& tokens, const ProcessLayout& processes,
                    KvCodec& codec) {
  StatisticsFitter(model, tokens, processes, codec).run();
}

}  // namespace headspan
