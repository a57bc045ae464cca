#include "bench/bench.h"

#include <algorithm>
#include <cstdio>

#include "base/progress.h"

namespace headspan {
namespace {

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t n = values.size();
  return n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

}  // namespace

double seconds_of(const Comm& comm, const std::function<void()>& work) {
  comm.barrier();
  const double start = Progress::steady_seconds();
  work();
  comm.barrier();
  return Progress::steady_seconds() - start;
}

PairedTimes time_in_turn(const Comm& comm, std::int64_t repeats, const std::function<void()>& first,
                         const std::function<void()>& second) {
  std::vector<double> firsts, seconds, ratios;
  for (std::int64_t run = -1; run < repeats; ++run) {  // run -1 warms up
    const double a = seconds_of(comm, first), b = seconds_of(comm, second);
    if (run < 0) continue;
    firsts.push_back(a);
    seconds.push_back(b);
    ratios.push_back(a / b);
  }
  return {median(firsts), median(seconds), median(ratios)};
}

bool report(const BenchOptions& options, const Comm& comm, const Figure& figure) {
  const bool met = figure.required == 0 || figure.ratio >= figure.required;
  if (!comm.is_root()) return met;
  std::printf("%-58s %9.3f %-8s limit %9.3f  ratio %6.3f", figure.name.c_str(), figure.figure,
              figure.unit.c_str(), figure.limit, figure.ratio);
  if (figure.required > 0) std::printf("  required %.2f  %s", figure.required, met ? "met" : "MISSED");
  std::printf(
      "\nbench=%s figure=\"%s\" unit=%s value=%.6g limit=%.6g ratio=%.4f required=%.2f met=%d ranks=%d "
      "layers=%lld "
      "heads=%lld head_size=%lld tokens=%lld precision=%s repeats=%lld\n",
      options.name.c_str(), figure.name.c_str(), figure.unit.c_str(), figure.figure, figure.limit,
      figure.ratio, figure.required, met ? 1 : 0, comm.size(), static_cast<long long>(options.layers),
      static_cast<long long>(options.heads), static_cast<long long>(options.head_size),
      static_cast<long long>(options.tokens), options.precision.c_str(),
      static_cast<long long>(options.repeats));
  std::fflush(stdout);
  return met;
}

}  // namespace headspan
