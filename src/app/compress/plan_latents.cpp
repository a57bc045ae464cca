#include "app/compress/plan_latents.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "app/job/value_kind.h"
#include "app/run/run_clock.h"
#include "base/checked.h"
#include "dist/matrix/linear_algebra.h"
#include "stats/compression/bit_allocation.h"
#include "stats/compression/latents.h"

namespace headspan {
namespace {

/// One layer of a stream on the rank that works on it.
struct OwnLatents {
  std::string stream;
  std::int64_t layer;
  Latents latents;
};

/// The power of two by which the first latent of a band, of this variance, is about 1: then scales of 16 bits
/// are exact enough whatever the unit of the loss. What is below the rounding of the layer's largest is as
/// good as that; 1 where nothing varies. Columns in FP32 hold it, and its inverse.
double band_scale(double variance, double largest) {
  const double resolved = std::max(variance, std::numeric_limits<double>::epsilon() * largest);
  return resolved > 0 ? std::exp2(std::clamp(-std::round(std::log2(resolved) / 2), -64.0, 64.0)) : 1;
}

class LatentPlanner {
 public:
  LatentPlanner(const Job::Compress& rule, const Calibration& calibration)
      : rule_(rule),
        calibration_(calibration),
        comm_(calibration.comm()),
        heads_(calibration.config.kv_heads),
        d_(calibration.config.head_size),
        layers_(calibration.config.layers),
        metrics_(head_metrics(calibration)) {}

  PlannedStreams plan(const MeasuredKl& measure) {
    std::vector<Spectrum> spectra = find_latents();
    if (measure) {
      const std::vector<double> units = measured_units(measure, spectra, allocate(spectra));
      for (std::size_t block = 0; block < spectra.size(); ++block)
        for (double& value : spectra[block]) value *= units[block];
    }
    return collect(spectra, allocate(spectra));
  }

  std::map<std::string, std::vector<double>> loss_scale(const MeasuredKl& measure) {
    const std::vector<Spectrum> spectra = find_latents();
    Allocation halves;
    for (const Spectrum& spectrum : spectra) {
      const Allocation own = allocate_columns({spectrum}, columns() / 2);
      halves.bands.push_back(own.bands.front());
      halves.loss.push_back(own.loss.front());
    }
    const std::vector<double> units = measured_units(measure, spectra, halves);
    std::map<std::string, std::vector<double>> by_stream;
    for (const std::string& stream : rule_.streams) {
      const auto first = units.begin() + static_cast<std::ptrdiff_t>(block_of(stream, 0));
      by_stream[stream] = {first, first + layers_};
    }
    return by_stream;
  }

 private:
  /// Spectra of all layers and streams, on every rank. Collective.
  std::vector<Spectrum> find_latents() {
    std::vector<Spectrum> spectra(rule_.streams.size() * to_size(layers_));
    for (std::int64_t first = 0; first < layers_; first += comm_.size()) {
      stop_where_asked(comm_);
      work_on(first);
    }
    for (const OwnLatents& own : own_) spectra[block_of(own.stream, own.layer)] = own.latents.eigenvalues;
    for (Spectrum& spectrum : spectra) {
      spectrum.resize(to_size(columns()), 0.0);
      comm_.sum(spectrum.data(), columns());
    }
    return spectra;
  }

  std::int64_t columns() const { return heads_ * d_; }

  std::size_t block_of(const std::string& stream, std::int64_t layer) const {
    const auto at = std::find(rule_.streams.begin(), rule_.streams.end(), stream) - rule_.streams.begin();
    return to_size(at * layers_ + layer);
  }

  /// Of the columns of this rank's layer of a round, first + rank; of none beyond the last. Collective.
  std::vector<double> covariance(const std::string& stream, std::int64_t first) const {
    const std::int64_t own = first + comm_.rank();
    std::vector<std::int64_t> heads(own < layers_ ? to_size(heads_) : 0);
    if (!calibration_.grams.empty()) {
      std::iota(heads.begin(), heads.end(), own * heads_);
      return covariance_of(calibration_.grams.at(stream).fit, heads, d_);
    }
    std::iota(heads.begin(), heads.end(), 0);
    std::vector<double> covariance;
    for (std::int64_t layer = first; layer < std::min(layers_, first + comm_.size()); ++layer) {
      const HeadGram& gram = calibration_.layer_grams.at(stream)[to_size(layer)];
      std::vector<double> some = covariance_of(gram, layer == own ? heads : std::vector<std::int64_t>(), d_);
      if (layer == own) covariance = std::move(some);
    }
    return covariance;
  }

  std::vector<double> mean(const std::string& stream, std::int64_t layer) const {
    if (calibration_.grams.empty()) return calibration_.layer_grams.at(stream)[to_size(layer)].mean;
    const auto all = calibration_.grams.at(stream).fit.mean.begin();
    return {all + layer * columns(), all + (layer + 1) * columns()};
  }

  /// This rank's layer of a round that begins with layer `first`. Collective.
  void work_on(std::int64_t first) {
    const std::int64_t layer = first + comm_.rank();
    for (const std::string& stream : rule_.streams) {
      std::vector<double> own = covariance(stream, first);
      if (layer >= layers_) continue;
      const auto metric = metrics_.at(stream).begin() + layer * heads_ * d_ * d_;
      own_.push_back(
          {stream, layer, make_latents(std::move(own), {metric, metric + heads_ * d_ * d_}, heads_, d_)});
    }
  }

  /// What each layer of each stream is measured to lose with its bands over what it is expected to; 1 where
  /// that is nothing. Collective.
  std::vector<double> measured_units(const MeasuredKl& measure, const std::vector<Spectrum>& spectra,
                                     const Allocation& allocation) const {
    std::vector<double> units(spectra.size(), 1.0);
    for (const std::string& stream : rule_.streams)
      for (std::int64_t layer = 0; layer < layers_; ++layer) {
        const std::size_t at = block_of(stream, layer);
        if (!(allocation.loss[at] > 0)) continue;
        stop_where_asked(comm_);
        PlannedBlock block = block_with(stream, layer, allocation.bands[at], spectra[at]);
        std::int64_t size = 0;
        for (const Band& band : block.bands) size += columns() * band.columns;
        for (std::vector<float>* values : {&block.projection, &block.lift}) {
          values->resize(to_size(size));
          comm_.broadcast(values->data(), size, 0);
        }
        units[at] = std::max(measure(stream, layer, block), 1e-12) / allocation.loss[at];
      }
    return units;
  }

  Allocation allocate(const std::vector<Spectrum>& spectra) const {
    const auto all = static_cast<double>(static_cast<std::int64_t>(spectra.size()) * columns());
    if (rule_.bits == "auto") return allocate_bits(spectra, rule_.stored * 2 * all);
    if (rule_.bits == "16") return allocate_columns(spectra, static_cast<std::int64_t>(rule_.stored * all));
    std::vector<Band> bands;
    for (const auto& [count, bits] : read_bands(rule_.bits)) bands.push_back({count, to_int(bits), false});
    return allocate_bands(spectra, bands);
  }

  /// Columns of the projection, scaled band by band.
  void cut(const Latents& latents, PlannedBlock& block) const {
    std::int64_t r = 0;
    for (const Band& band : block.bands) r += band.columns;
    block.projection.resize(to_size(columns() * r));
    block.lift.resize(to_size(r * columns()));
    std::int64_t latent = 0;
    for (const Band& band : block.bands) {
      const double scale = band_scale(latents.variances[to_size(latent)], latents.variances.front());
      for (const std::int64_t last = latent + band.columns; latent < last; ++latent)
        for (std::int64_t i = 0; i < columns(); ++i) {
          const std::size_t at = to_size(i + latent * columns());
          block.projection[to_size(i * r + latent)] = static_cast<float>(latents.projection[at] * scale);
          block.lift[to_size(latent * columns() + i)] =
              static_cast<float>(latents.reconstruction[at] / scale);
        }
    }
  }

  /// One layer of a stream in given bands; projection and lift on rank 0 alone. Collective.
  PlannedBlock block_with(const std::string& stream, std::int64_t layer, std::vector<Band> bands,
                          const Spectrum& spectrum) const {
    PlannedBlock block;
    block.bands = std::move(bands);
    block.eigenvalues = spectrum;
    block.mean = block.bias = mean(stream, layer);
    for (const OwnLatents& own : own_)
      if (own.stream == stream && own.layer == layer) cut(own.latents, block);
    send_to_root(block.projection);
    send_to_root(block.lift);
    return block;
  }

  /// The blocks of all layers, on rank 0. Collective.
  PlannedStreams collect(const std::vector<Spectrum>& spectra, const Allocation& allocation) const {
    PlannedStreams planned;
    for (const std::string& stream : rule_.streams)
      for (std::int64_t layer = 0; layer < layers_; ++layer) {
        const std::size_t at = block_of(stream, layer);
        PlannedBlock block = block_with(stream, layer, allocation.bands[at], spectra[at]);
        block.expected_loss = allocation.loss[at];
        if (comm_.is_root()) planned[stream].push_back(std::move(block));
      }
    return planned;
  }

  /// `values` of the one rank that has some becomes rank 0's. Collective.
  void send_to_root(std::vector<float>& values) const {
    std::vector<std::vector<float>> send(to_size(comm_.size()));
    send[0] = std::move(values);
    values.clear();
    for (std::vector<float>& part : comm_.exchange(send))
      if (!part.empty()) values = std::move(part);
  }

  const Job::Compress& rule_;
  const Calibration& calibration_;
  const Comm& comm_;
  std::int64_t heads_, d_, layers_;
  std::map<std::string, std::vector<double>> metrics_;
  std::vector<OwnLatents> own_;
};

}  // namespace

void check_latents(const Job::Compress& rule, const ModelConfig& config) {
  const std::int64_t columns = config.kv_heads * config.head_size;
  if (columns > kMostEigenvectors) {
    const std::string what = "takes the latents of layers, of which each has " + std::to_string(columns) +
                             " columns, above the " + std::to_string(kMostEigenvectors) +
                             " whose eigenvectors LAPACK can count";
    if (rule.algorithm == "latent")
      throw InputError("", "compress.algorithm", rule.algorithm, what,
                       "choose headspan, paper-text, paper-code or quantise");
    if (rule.units == "measured") throw InputError("", "compress.units", rule.units, what, "leave it out");
  }
  if (rule.bits.find('x') == std::string::npos) return;
  std::int64_t latents = 0;
  for (const auto& [count, bits] : read_bands(rule.bits)) latents += std::min(count, columns + 1);
  if (latents > columns)
    throw InputError("", "compress.bits", rule.bits,
                     "has more latents than the " + std::to_string(columns) + " columns of a layer",
                     "give bands of that many at most");
}

PlannedStreams plan_latents(const Job::Compress& rule, const Calibration& calibration,
                            const MeasuredKl& measure) {
  return LatentPlanner(rule, calibration).plan(measure);
}

std::map<std::string, std::vector<double>> loss_scale(const Job::Compress& rule,
                                                      const Calibration& calibration,
                                                      const MeasuredKl& measure) {
  return LatentPlanner(rule, calibration).loss_scale(measure);
}

PlannedStreams plan_quantised(const Job::Compress& rule, const ModelConfig& config) {
  const std::int64_t d = config.head_size, group = std::min(config.kv_heads, (64 + d - 1) / d) * d;
  PlannedBlock block;
  for (std::int64_t left = config.kv_heads * d; left > 0; left -= group)
    block.bands.push_back({std::min(left, group), std::stoi(rule.bits), true});
  PlannedStreams planned;
  for (const std::string& stream : rule.streams) planned[stream].assign(to_size(config.layers), block);
  return planned;
}

}  // namespace headspan
