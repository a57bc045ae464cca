// machine: what bounds every other figure here: products and sums on registers, reading and copying of
// memory, and with --folder a cold read of its .safetensors files. All threads of all ranks work at a time;
// the figures are sums over them.
#include <array>
#include <cstring>
#include <thread>

#include "base/clock.h"
#include "base/process/cpu_dispatch.h"
#include "bench/bench.h"
#include "bench/plain_read.h"

namespace headspan {
namespace {

constexpr std::int64_t kArrayBytes = std::int64_t{512} << 20;  // of a thread, far more than a cache holds

/// Multiplies and adds in registers only. Returns the number of products and sums.
template <class P>
struct FusedProducts {
  template <int Lanes>
  HS_INLINED static double run(std::int64_t rounds, P* out) {
    typedef P Values __attribute__((vector_size(4 * Lanes)));
    constexpr int kSums = 12;  // hide the latency of one
    Values sums[kSums];
    for (int i = 0; i < kSums; ++i) sums[i] = P(i) - Values{};  // equal ones would be computed once
    const Values x = P(0.5) - Values{};
    for (std::int64_t round = 0; round < rounds; ++round)
#pragma GCC unroll 12
      for (int i = 0; i < kSums; ++i) sums[i] = sums[i] * x + x;
    for (int i = 1; i < kSums; ++i) sums[0] += sums[i];
    std::memcpy(out, &sums[0], sizeof *out);
    return 2.0 * kSums * (sizeof(Values) / sizeof(P)) * static_cast<double>(rounds);
  }
};

/// Runs work(thread) on each thread of a rank; returns the sum of what they return.
double on_all_threads(int threads, const std::function<double(int)>& work) {
  std::vector<double> done(static_cast<std::size_t>(threads));
  std::vector<std::thread> others;
  for (int i = 1; i < threads; ++i)
    others.emplace_back([&, i] { done[static_cast<std::size_t>(i)] = work(i); });
  done[0] = work(0);
  for (std::thread& other : others) other.join();
  double sum = 0;
  for (const double part : done) sum += part;
  return sum;
}

class MachineBench {
 public:
  MachineBench(const BenchOptions& options, const Comm& comm) : options_(options), comm_(comm) {}

  template <class P>
  void products(const char* name, Resource resource) {
    constexpr std::int64_t kRounds = 30'000'000;
    measure(name, "GF/s", resource, [](int) {
      P result{};
      const double flop = for_this_processor<FusedProducts<P>>(kRounds, &result);
      return result > 0 ? 1e-9 * flop : 0;  // uses the result
    });
  }

  void memory() {
    const auto threads = static_cast<std::size_t>(options_.threads);
    std::vector<std::vector<std::uint64_t>> from(threads), to(threads);
    on_all_threads(options_.threads, [&](int thread) {  // a thread's memory is near to it
      from[static_cast<std::size_t>(thread)].assign(kArrayBytes / sizeof(std::uint64_t), 1);
      to[static_cast<std::size_t>(thread)].assign(kArrayBytes / sizeof(std::uint64_t), 0);
      return 0.0;
    });
    measure("reading of memory", "GB/s", Resource::read, [&](int thread) {
      const std::vector<std::uint64_t>& values = from[static_cast<std::size_t>(thread)];
      const auto sum = on_this_processor([data = values.data(), count = values.size()]() HS_INLINED {
        std::uint64_t found = 0;
        for (std::size_t i = 0; i < count; ++i) found += data[i];
        return found;
      });
      return sum == values.size() ? 1e-9 * kArrayBytes : 0;
    });
    measure("copying of memory", "GB/s", Resource::copy, [&](int thread) {
      const auto i = static_cast<std::size_t>(thread);
      std::memcpy(to[i].data(), from[i].data(), kArrayBytes);
      return to[i].back() == 1 ? 1e-9 * kArrayBytes : 0;
    });
  }

  void disk() {
    const std::vector<std::string> files = weight_files(options_.folder);
    std::vector<double> rates;
    for (std::int64_t run = 0; run < options_.repeats; ++run) {
      if (comm_.is_root()) drop_from_cache(files);
      const double seconds = seconds_of(comm_, [&] {
        if (comm_.is_root()) plain_read(files);
      });
      rates.push_back(1e-9 * static_cast<double>(size_of(files)) / seconds);
    }
    tell("reading of files from disk", "GB/s", Resource::disk, median(rates));
  }

 private:
  /// `work`: on a thread; returns how much of the unit, without its "per second", it has done.
  void measure(const char* name, const char* unit, Resource resource,
               const std::function<double(int)>& work) {
    double amount = 0;
    const double seconds =
        median_seconds(comm_, options_.repeats, [&] { amount = on_all_threads(options_.threads, work); });
    comm_.sum(&amount, 1);
    tell(name, unit, resource, amount / seconds);
  }

  void tell(const char* name, const char* unit, Resource resource, double rate) {
    report(options_, comm_, {name, unit, rate, kNone, kNone, kNone, {resource, rate}});
  }

  const BenchOptions& options_;
  const Comm& comm_;
};

}  // namespace

bool bench_machine(const BenchOptions& options, const Comm& comm) {
  MachineBench machine(options, comm);
  machine.products<double>("fused products and sums in FP64", Resource::fp64);
  machine.products<float>("fused products and sums in FP32", Resource::fp32);
  machine.memory();
  if (!options.folder.empty()) machine.disk();
  return true;
}

}  // namespace headspan
