// device: that a study is right on a GPU, where this process sees one, else with the same code on the CPU: R²
// of all pairs of K, Q and V of a model with random weights, of Grams that stay there, against the path on
// the CPU, with a forward in float64 and products in float64 and split, and with both in bfloat16. products:
// how fast the products of the Gram are there, against LibTorch's own of the same shape. One rank.
#include <cmath>

#include <ATen/ATen.h>

#include "app/capture/capture.h"
#include "app/sources/gram_source.h"
#include "app/study/analysis.h"
#include "bench/made_up_sample.h"
#include "device/device_pairs.h"
#include "device/device_values.h"
#include "model/types/read_config.h"

namespace headspan {
namespace {

struct Setup {
  ModelConfig config;
  Sample sample;
  at::Device device;
};

/// Throws InputError for several ranks.
at::Device place_of_one(const BenchOptions& options, const Comm& comm) {
  if (comm.size() != 1)
    throw InputError("", "ranks", std::to_string(comm.size()), "are too many", "start one");
  return bench_place(options, comm);
}

/// R² of all pairs, stream by stream. T: double for a forward in float64, else float.
template <class T>
std::vector<double> pairs_of(const Setup& setup, const Comm& comm, Dtype dtype, Precision precision,
                             bool on_device) {
  const bool on_gpu = on_device && setup.device.is_cuda();
  const ProcessLayout processes(comm, 1, 1, {},
                                on_gpu ? std::optional<int>(setup.device.index()) : std::nullopt);
  const Log silent(false);
  Progress progress(silent, "forward", "tokens", setup.sample.total());
  Profile profile;
  CaptureRequest request{{Stream::k, Stream::q, Stream::v}};
  request.precision = precision;
  request.on_device = on_device;
  const Transformer model = Transformer::random(
      setup.config, 0, {dtype, {setup.config.layers, false}, on_device ? setup.device : at::Device(at::kCPU)},
      processes.tensor_device());
  std::map<std::size_t, ResidentGrams> resident;
  if (on_device) request.resident = &resident;
  auto grams = capture_grams<T>(model, setup.sample, request, processes, progress, profile);
  std::vector<double> r2;
  for (std::size_t s = 0; s < grams.size(); ++s) {
    const HeadLayout layout = stream_layout(setup.config, request.streams[s]);
    const PairTable pairs = [&] {
      if (!on_device)
        return all_pairs(regression_data(layout, {}, std::move(grams[s].fit), std::move(grams[s].heldout)));
      const RegressionData data = resident.at(s).take_data(layout, {});
      return all_pairs(data, device_pair_sums(setup.device, &resident.at(s)));
    }();
    r2.insert(r2.end(), pairs.r2.begin(), pairs.r2.end());
    r2.insert(r2.end(), pairs.r2_heldout.begin(), pairs.r2_heldout.end());
  }
  return r2;
}

/// The largest difference; infinite where one has a value and the other none, or none has any.
double furthest(const std::vector<double>& a, const std::vector<double>& b) {
  double most = 0;
  bool any = false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i]) != std::isnan(b[i])) return INFINITY;
    if (std::isnan(a[i])) continue;
    any = true;
    most = std::max(most, std::abs(a[i] - b[i]));
  }
  return any ? most : INFINITY;
}

template <class T>
bool check(const BenchOptions& options, const Comm& comm, const Setup& setup, Dtype dtype,
           const std::string& products, double allowed) {
  const Precision precision = value_of(precision_words(), products).value();
  const double found = furthest(pairs_of<T>(setup, comm, dtype, precision, false),
                                pairs_of<T>(setup, comm, dtype, precision, true));
  return report(options, comm,
                {"R2 of all pairs, forward in " + dtype_name(dtype) + ", products in " + products +
                     ", furthest from that of the CPU",
                 "-", found, allowed, found == 0 ? INFINITY : allowed / found, 1});
}

/// A panel of the Gram's columns, and LibTorch's product of the whole square, of which half is asked.
/// LibTorch has no products of `split`: beside them stand those in FP64, and nothing is required.
bool measure_products(const BenchOptions& options, const Comm& comm, at::Device device,
                      const std::string& name) {
  const Precision precision = value_of(precision_words(), name).value();
  const std::int64_t columns = options.columns(), tokens = std::min<std::int64_t>(options.tokens, 8192);
  const Grid grid(comm, 1, 1);
  DeviceGram gram(grid, columns, gram_block(grid.shape(), options.all_heads(), options.head_size), device);
  const at::Tensor panel =
      at::randn({tokens, columns}, at::dtype(at::kFloat).device(device)).to(panel_type(precision));
  const bool split = precision == Precision::split;
  const at::Tensor peer = split ? panel.to(at::kDouble) : panel;
  at::Tensor square;
  const TurnTimes times = time_in_turn(
      comm, options.repeats,
      [&] {
        square = at::mm(peer.t(), peer);
        wait_for(square.device());
      },
      [&] {
        gram.add(panel, panel, precision);
        wait_for(panel.device());
      });
  const double gflop =
      1e-9 * static_cast<double>(tokens) * static_cast<double>(columns) * static_cast<double>(columns);
  return report(
      options, comm,
      {"Gram, " + name + ", against torch.mm" + (split ? " in float64" : "") + " (2 n D^2 for the square)",
       "GF/s", gflop / times.routine, 2 * gflop / times.limit, times.speed / 2,
       device.is_cuda() && !split ? 0.85 : kNone});
}

}  // namespace

bool bench_device(const BenchOptions& given, const Comm& comm) {
  const ModelConfig config = read_model_config(given.folder + "/config.json");
  const BenchOptions options = with_shape_of(config, given);
  const Setup setup{config, made_up_sample(options, options.tokens, config.vocab_size),
                    place_of_one(options, comm)};
  const bool exact = check<double>(options, comm, setup, Dtype::float64, "float64", 1e-6);
  // In host memory a device multiplies hi + lo, and the host integers where it can: R² of 900 tokens of
  // tiny-olmo2's first step then differs by 5e-6.
  const double of_split = setup.device.is_cuda() ? 1e-6 : 1e-5;
  const bool split = check<double>(options, comm, setup, Dtype::float64, "split", of_split);
  return check<float>(options, comm, setup, Dtype::bfloat16, "bfloat16", 1e-3) && exact && split;
}

bool bench_products(const BenchOptions& options, const Comm& comm) {
  const at::Device device = place_of_one(options, comm);
  bool met = true;
  for (const char* const name : {"float64", "float32", "split", "bfloat16"})
    met = measure_products(options, comm, device, name) && met;
  return met;
}

}  // namespace headspan
