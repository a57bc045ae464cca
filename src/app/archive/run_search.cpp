#include "app/archive/run_search.h"

#include <algorithm>
#include <limits>

#include "base/checked.h"

namespace headspan {
namespace {

constexpr std::int64_t kUnit = 16;                             // of positions, and of bits of a token
constexpr std::array<std::int64_t, 4> kLengths{1, 4, 16, 64};  // of a run, in units
constexpr std::array<int, 3> kTypes{8, 4, 2};                  // bits of a code
constexpr std::int64_t kScaleUnits = 2;                        // of a run's least number and step
constexpr double kNever = std::numeric_limits<double>::infinity();

/// The least errors of all ways to divide coefficients up to a position into runs.
class RunTable {
 public:
  RunTable(std::int64_t positions, std::int64_t units)
      : positions_(positions),
        units_(units),
        states_(to_size((positions + 1) * (units + 1)) * kTypes.size()) {
    at({0, 0, 0}).error = 0;
  }

  /// A division: where it ends, what it takes, and the type of its last run.
  struct Key {
    std::int64_t position, units;
    std::size_t type;
  };

  double error(const Key& key) const { return states_[index(key)].error; }

  /// Offers a division that continues another one by a run, which may end early with the coefficients.
  void offer(const Key& before, std::size_t length, std::size_t type, double error) {
    const std::int64_t units = std::min(kLengths[length], positions_ - before.position);
    const Key next{before.position + units, before.units + units * kTypes[type] + kScaleUnits, type};
    if (next.units > units_ || at(next).error <= error) return;
    at(next) = {error, before, units};
  }

  /// Returns the runs of a division; the last one may reach beyond the coefficients.
  std::vector<CodedRun> runs(Key key) const {
    std::vector<CodedRun> found;
    while (key.position > 0) {
      const State& state = states_[index(key)];
      found.push_back({kUnit * state.length, kTypes[key.type]});
      key = state.before;
    }
    std::reverse(found.begin(), found.end());
    return found;
  }

 private:
  struct State {
    double error = kNever;
    Key before{0, 0, 0};
    std::int64_t length = 0;  // of the last run
  };

  std::size_t index(const Key& key) const {
    return to_size(key.position * (units_ + 1) + key.units) * kTypes.size() + key.type;
  }
  State& at(const Key& key) { return states_[index(key)]; }

  std::int64_t positions_, units_;
  std::vector<State> states_;
};

}  // namespace

RunSearch::RunSearch(std::int64_t coefficients)
    : coefficients_(coefficients),
      positions_((coefficients + kUnit - 1) / kUnit),
      errors_(to_size(positions_) * kLengths.size() * kTypes.size()),
      squares_(to_size(positions_)) {}

double RunSearch::error(std::int64_t position, std::size_t length, std::size_t type) const {
  return errors_[(to_size(position) * kLengths.size() + length) * kTypes.size() + type];
}

void RunSearch::add(const float* coefficients, std::int64_t tokens) {
  std::vector<float> run;
  for (std::int64_t t = 0; t < tokens; ++t, coefficients += coefficients_) {
    double* to = errors_.data();
    for (std::int64_t p = 0; p < positions_; ++p) {
      const float* const first = coefficients + kUnit * p;
      const auto end_of = [&](std::int64_t units) {
        return coefficients + std::min(kUnit * (p + units), coefficients_);
      };
      for (const float* x = first; x < end_of(1); ++x)
        squares_[to_size(p)] += static_cast<double>(*x) * static_cast<double>(*x);
      for (const std::int64_t length : kLengths)
        for (const int bits : kTypes) {
          run.assign(first, end_of(length));
          *to++ += round_run(bits, static_cast<std::int64_t>(run.size()), run.data());
        }
    }
  }
}

void RunSearch::sum(const Comm& comm) {
  comm.sum(errors_.data(), static_cast<std::int64_t>(errors_.size()));
  comm.sum(squares_.data(), positions_);
}

std::vector<CodedRun> RunSearch::find(std::int64_t bits) const {
  const std::int64_t units = bits / kUnit;
  RunTable table(positions_, units);
  RunTable::Key best{0, 0, 0}, key{0, 0, 0};
  double dropped = 0;  // squares of what is behind a division
  for (const double squares : squares_) dropped += squares;
  double least = dropped;
  for (key.position = 0; key.position <= positions_; ++key.position) {
    for (key.units = 0; key.units <= units; ++key.units)
      for (key.type = 0; key.type < kTypes.size(); ++key.type) {
        const double before = table.error(key);
        if (before == kNever) continue;
        if (before + dropped < least) best = key, least = before + dropped;
        if (key.position == positions_) continue;
        for (std::size_t length = 0; length < kLengths.size(); ++length)
          for (std::size_t type = key.type; type < kTypes.size(); ++type)
            table.offer(key, length, type, before + error(key.position, length, type));
      }
    if (key.position < positions_) dropped -= squares_[to_size(key.position)];
  }
  std::vector<CodedRun> runs = table.runs(best);
  std::int64_t count = 0;
  for (const CodedRun& run : runs) count += run.count;
  if (count > coefficients_) runs.back().count -= count - coefficients_;
  return runs;
}

}  // namespace headspan
