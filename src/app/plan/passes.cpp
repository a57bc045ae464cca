#include "app/plan/passes.h"

#include <algorithm>

#include "app/job/job_rules.h"
#include "app/plan/job_sizes.h"
#include "app/plan/memory_cost.h"
#include "app/run/rank_resources.h"
#include "device/device_values.h"

namespace headspan {
namespace {

constexpr double kLibraries = 1.5 * (1 << 30);  // workspaces of BLAS, buffers of NCCL, fragments
constexpr double kProduct = 256.0 * (1 << 20);  // of a stripe in 32 bits (device/device_gram.cpp)
constexpr double kSplitProduct = 4 * kProduct;  // in FP64 and 32 bits, and values before they become integers
constexpr double kFullestPanel = 1.5;           // of the tokens of a panel (stats/gram/collector.cpp)
constexpr std::int64_t kMostStripes = 64;

/// Returns the bytes of the operands of a stream's product. With several ranks these are the rows of this
/// rank's tokens and the rows that the ranks exchange, for the current panel and the next.
double panel_bytes(const PassSetting& setting, double columns, double tokens) {
  const Precision precision = setting.job.predict.product(setting.dtype);
  const double value = real(panel_value_bytes(precision)),
               copy = precision == Precision::split ? sizeof(double) : 0;
  if (setting.group.ranks == 1) return tokens * columns * (value + copy);
  const double local = tokens / real(setting.group.ranks) * columns * value;
  const double gathered =
      tokens * columns * (1 / real(setting.group.grid.rows) + 1 / real(setting.group.grid.columns));
  return 2 * (3 * local + gathered * value) + gathered * copy;
}

/// Returns the sizes of the Grams that are summed, in the order of a capture: with a reference the streams of
/// both models come in place of the unit's.
std::vector<StreamSize> summed_sizes(const PassSetting& setting) {
  std::vector<StreamSize> summed;
  std::size_t replaced = 0;
  for (const StreamSize& size : stream_sizes(setting.job.predict, setting.config, setting.reference))
    if (size.of == GramOf::models)
      summed[replaced++] = size;
    else
      summed.push_back(size);
  return summed;
}

/// Returns how many streams and pairs of streams have a Gram.
std::size_t captured(const Job::Predict& predict) { return predict.streams.size() + predict.cross.size(); }

/// Cuts the streams into `count` runs of consecutive streams, as evenly as possible.
std::vector<std::vector<std::size_t>> cut_streams(std::size_t streams, std::size_t count) {
  std::vector<std::vector<std::size_t>> runs(count);
  for (std::size_t s = 0; s < streams; ++s) runs[s * count / streams].push_back(s);
  return runs;
}

std::vector<DeviceShare> make_passes(const PassSetting& setting, std::size_t runs, bool by_part,
                                     std::int64_t stripes) {
  std::vector<std::vector<Part>> parts{{Part::fit}};
  if (setting.heldout && by_part) parts.push_back({Part::heldout});
  if (setting.heldout && !by_part) parts[0].push_back(Part::heldout);
  std::vector<DeviceShare> passes;
  for (const auto& streams : cut_streams(captured(setting.job.predict), runs))
    for (const auto& part : parts)
      for (std::int64_t stripe = 0; stripe < stripes; ++stripe)
        passes.push_back({streams, part, {stripe, stripes}});
  return passes;
}

}  // namespace

double pass_bytes(const PassSetting& setting, const DeviceShare& pass) {
  const GroupShape& group = setting.group;
  const std::vector<StreamSize> streams = summed_sizes(setting);
  const double panel = real(tokens_of_panel(streams, setting.job.predict.product(setting.dtype),
                                            setting.dtype, setting.heldout, group)),
               batch = real(setting.batch) / real(group.tensor_parallel),
               parts = real(static_cast<std::int64_t>(pass.parts.size()));
  double bytes = 0, widest = 0;
  for (const std::size_t s : pass.streams) {
    const double columns = streams[s].columns;
    const std::int64_t elements = most_elements(group.grid, static_cast<std::int64_t>(columns),
                                                block_of(streams[s], group.grid), pass.slice.of);
    const double waiting = (panel / real(group.ranks) + 2 * batch) * columns * bytes_of(setting.dtype);
    bytes += parts * (sizeof(double) * real(elements) + waiting);
    widest = std::max(widest, columns);
  }
  const bool split = setting.job.predict.product(setting.dtype) == Precision::split;
  return bytes + panel_bytes(setting, widest, kFullestPanel * panel) + (split ? kSplitProduct : kProduct);
}

double bytes_beside_passes(const PassSetting& setting) {
  const double tensor_parallel = real(setting.group.tensor_parallel);
  double weights =
      study_weight_bytes(setting.job, setting.config, setting.dtype, setting.group.tensor_parallel);
  double forward = forward_bytes(setting.config, setting.dtype, real(setting.batch), tensor_parallel);
  if (const ModelConfig* const reference = setting.reference) {
    weights += reference_weight_bytes(*reference, setting.dtype, setting.group.tensor_parallel);
    forward =
        std::max(forward, forward_bytes(*reference, setting.dtype, real(setting.batch), tensor_parallel));
  }
  return weights + forward + kLibraries;
}

std::vector<DeviceShare> plan_passes(const PassSetting& setting, double bytes) {
  const double room = bytes - bytes_beside_passes(setting);
  const auto fit = [&](const std::vector<DeviceShare>& passes) {
    return std::all_of(passes.begin(), passes.end(), [&](const DeviceShare& pass) {
      return pass.slice.number > 0 || pass_bytes(setting, pass) <= room;  // which counts the largest stripe
    });
  };
  const std::size_t streams = captured(setting.job.predict);
  for (std::size_t runs = 1; runs <= streams; ++runs)
    for (const bool by_part : {false, true}) {
      std::vector<DeviceShare> passes = make_passes(setting, runs, by_part, 1);
      if (fit(passes)) return passes;
    }
  for (std::int64_t stripes = 2; stripes <= kMostStripes; ++stripes) {
    std::vector<DeviceShare> passes = make_passes(setting, streams, true, stripes);
    if (fit(passes)) return passes;
  }
  return {};
}

std::string pass_name(const PassSetting& setting, const DeviceShare& pass) {
  std::string name;
  const Job::Predict& predict = setting.job.predict;
  for (const std::size_t s : pass.streams) {
    const std::size_t own = predict.streams.size();
    name += (name.empty() ? "" : ",") +
            (s < own ? word_of(stream_words(), predict.streams[s]) : name_of(predict.cross[s - own]));
  }
  std::string parts;
  for (const Part part : pass.parts)
    parts += std::string(parts.empty() ? "" : ",") + (part == Part::fit ? "fit" : "heldout");
  name += " " + parts;
  if (pass.slice.of == 1) return name;
  return name + " " + std::to_string(pass.slice.number + 1) + "/" + std::to_string(pass.slice.of) + " on " +
         to_string(setting.group.grid);  // the grid determines the stripes
}

}  // namespace headspan
