#include "io/archive/rate_control.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "base/error.h"
#include "base/printable.h"

namespace headspan {
namespace {

using Value = std::function<double(const RatePoint&)>;

/// Returns a value of the curve at a step within it, linear between two points.
double value_at(const std::vector<RatePoint>& curve, int step, const Value& value) {
  std::size_t next = 1;
  while (next + 1 < curve.size() && curve[next].step < step) ++next;
  const RatePoint &a = curve[next - 1], &b = curve[next];
  const double share = static_cast<double>(step - a.step) / (b.step - a.step);
  return (1 - share) * value(a) + share * value(b);
}

/// Throws InputError because `key` asks for a value beyond the ends of the curve.
[[noreturn]] void refuse(const std::string& key, double asked, double first, double last) {
  throw InputError("", key, printable(asked), "is beyond what the codec was measured for",
                   "give " + printable(std::min(first, last)) + " to " + printable(std::max(first, last)));
}

double bits_of(const RatePoint& point) { return point.bits; }
double log_kl(const RatePoint& point) { return std::log(point.kl); }

}  // namespace

int step_for_bits(const std::vector<RatePoint>& curve, double bits) {
  if (bits > curve.front().bits || bits < curve.back().bits)
    refuse("archive.bits", bits, curve.front().bits, curve.back().bits);
  int step = curve.front().step;
  while (value_at(curve, step, bits_of) > bits) ++step;
  return step;
}

int step_for_kl(const std::vector<RatePoint>& curve, double kl) {
  if (kl < curve.front().kl || kl > curve.back().kl)
    refuse("archive.kl", kl, curve.front().kl, curve.back().kl);
  int step = curve.back().step;
  while (value_at(curve, step, log_kl) > std::log(kl)) --step;
  return step;
}

double bits_at(const std::vector<RatePoint>& curve, int step) { return value_at(curve, step, bits_of); }

}  // namespace headspan
