#include "bench/bench.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>

#include "app/run/rank_resources.h"
#include "base/clock.h"
#include "base/progress.h"
#include "device/device_values.h"
#include "model/core/model_config.h"

namespace headspan {
namespace {

const char* name_of(Resource resource) {
  switch (resource) {
    case Resource::fp64:
      return "fp64";
    case Resource::fp32:
      return "fp32";
    case Resource::read:
      return "read";
    case Resource::copy:
      return "copy";
    case Resource::disk:
      return "disk";
    default:
      return "none";
  }
}

void print_for_people(const Figure& figure, bool met) {
  std::printf("%-66s %10.3f %s", figure.name.c_str(), figure.value, figure.unit.c_str());
  if (!std::isnan(figure.limit)) std::printf(", limit %.3f, ratio %.3f", figure.limit, figure.ratio);
  if (std::isnan(figure.required))
    std::printf(", nothing required\n");
  else
    std::printf(", required %.3f: %s\n", figure.required, met ? "met" : "MISSED");
}

void print_for_programs(const BenchOptions& o, const Comm& comm, const Figure& figure, bool met) {
  std::printf("bench=%s figure=\"%s\" unit=%s value=%.6g limit=%.6g ratio=%.6g required=%.4g met=%s",
              o.name.c_str(), figure.name.c_str(), figure.unit.c_str(), figure.value, figure.limit,
              figure.ratio, figure.required,
              std::isnan(figure.required) ? "none"
              : met                       ? "yes"
                                          : "no");
  std::printf(" resource=%s rate=%.6g", name_of(figure.use.resource), figure.use.rate);
  std::printf(" ranks=%d threads=%d precision=%s", comm.size(), o.threads, o.precision.c_str());
  const std::pair<const char*, std::int64_t> sizes[] = {{"layers", o.layers},
                                                        {"heads", o.heads},
                                                        {"head_size", o.head_size},
                                                        {"tokens", o.tokens},
                                                        {"sequence_length", o.sequence_length},
                                                        {"repeats", o.repeats}};
  for (const auto& [name, size] : sizes) std::printf(" %s=%lld", name, static_cast<long long>(size));
  std::printf("\n");
}

}  // namespace

double median(std::vector<double> values) {
  HS_ASSERT(!values.empty());
  std::sort(values.begin(), values.end());
  const std::size_t n = values.size();
  return n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

double seconds_of(const Comm& comm, const std::function<void()>& work) {
  comm.barrier();
  const double start = steady_seconds();
  work();
  comm.barrier();
  return steady_seconds() - start;
}

double median_seconds(const Comm& comm, std::int64_t repeats, const std::function<void()>& work) {
  std::vector<double> seconds;
  work();
  for (std::int64_t run = 0; run < repeats; ++run) seconds.push_back(seconds_of(comm, work));
  return median(std::move(seconds));
}

TurnTimes time_in_turn(const Comm& comm, std::int64_t repeats, const std::function<void()>& limit,
                       const std::function<void()>& routine, const std::function<void()>& prepare) {
  const auto prepared_seconds_of = [&](const std::function<void()>& work) {
    prepare();
    return seconds_of(comm, work);
  };
  std::vector<double> limits, routines, speeds;
  limit();
  routine();
  for (std::int64_t run = 0; run < repeats; ++run) {
    limits.push_back(prepared_seconds_of(limit));
    routines.push_back(prepared_seconds_of(routine));
    speeds.push_back(limits.back() / routines.back());
  }
  return {median(std::move(limits)), median(std::move(routines)), median(std::move(speeds))};
}

bool report(const BenchOptions& options, const Comm& comm, const Figure& figure) {
  int met = std::isnan(figure.required) || figure.ratio >= figure.required;
  comm.broadcast(&met, 1, 0);  // the clocks of two ranks differ by a little
  if (!comm.is_root()) return met != 0;
  print_for_people(figure, met != 0);
  print_for_programs(options, comm, figure, met != 0);
  std::fflush(stdout);
  return met != 0;
}

at::Device bench_place(const BenchOptions& options, const Comm& comm) {
  Job job;
  job.run.device = value_of(device_words(), options.device);
  set_exact_products();
  const std::optional<int> gpu = choose_gpu(job.run, comm);
  return gpu ? at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(*gpu)) : at::Device(at::kCPU);
}

bool has_weights(const std::string& folder) {
  const std::filesystem::directory_iterator files(folder);
  return std::any_of(begin(files), end(files),
                     [](const auto& file) { return file.path().extension() == ".safetensors"; });
}

BenchOptions with_shape_of(const ModelConfig& config, BenchOptions options) {
  options.layers = config.layers;
  options.heads = config.kv_heads;
  options.head_size = config.head_size;
  return options;
}

}  // namespace headspan
