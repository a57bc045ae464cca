#include "app/compress/plan_latents.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "app/job/job_rules.h"
#include "app/run/run_clock.h"
#include "base/checked.h"
#include "dist/matrix/linear_algebra.h"
#include "stats/compression/bit_allocation.h"
#include "stats/compression/latents.h"

namespace headspan {
namespace {

/// The latents of a layer of a stream, on the rank that found them.
struct BlockLatents {
  Stream stream;
  std::int64_t layer;
  Latents latents;
};

/// Returns a variance, raised to the rounding error of the layer's largest.
double resolved(double variance, double largest) {
  return std::max(variance, std::numeric_limits<double>::epsilon() * largest);
}

/// Returns the power of two by which a band is multiplied, so that its first latent, of this variance, has a
/// standard deviation of about 1: scales of 16 bits are then accurate whatever the unit of the loss. Returns
/// 1 if nothing varies. A variance below the rounding error of the layer's largest is raised to that error.
/// FP32 can represent the result and its inverse.
double band_scale(double variance, double largest) {
  const double found = resolved(variance, largest);
  return found > 0 ? std::exp2(std::clamp(-std::round(std::log2(found) / 2), -64.0, 64.0)) : 1;
}

/// Returns the step of a latent of this variance in a record with a gain, within the same bounds.
double column_step(double variance, double largest, int bits) {
  return std::clamp(std::sqrt(resolved(variance, largest)) * normal_step(bits), 0x1p-64, 0x1p64);
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
    const std::vector<Spectrum> spectra = find_latents();
    std::vector<BlockSpectra> found;
    for (const Spectrum& spectrum : spectra) found.push_back({spectrum, {}});
    if (!measure) return collect(found, allocate(found));
    const std::vector<double> scales = measured_scales(measure, spectra, allocate(found));
    std::vector<BlockSpectra> measured;
    for (std::size_t block = 0; block < spectra.size(); ++block)
      measured.push_back({scaled(spectra[block], scales[block]), {}});
    if (!rule_.bits.is_automatic()) return collect(measured, allocate(measured));
    for (BlockSpectra& block : found) block = {{}, std::move(block.steps)};
    const std::vector<double> of_gain = measured_scales(measure, spectra, allocate(found));
    for (std::size_t block = 0; block < spectra.size(); ++block)
      measured[block].gain = scaled(spectra[block], of_gain[block]);
    return collect(measured, allocate(measured));
  }

  std::map<Stream, std::vector<double>> loss_scale(const MeasuredKl& measure) {
    const std::vector<Spectrum> spectra = find_latents();
    Allocation halves;
    for (const Spectrum& spectrum : spectra) {
      const Allocation half = allocate_columns({spectrum}, columns() / 2);
      halves.bands.push_back(half.bands.front());
      halves.loss.push_back(half.loss.front());
    }
    const std::vector<double> scales = measured_scales(measure, spectra, halves);
    std::map<Stream, std::vector<double>> by_stream;
    for (const Stream stream : rule_.streams) {
      const auto first = scales.begin() + static_cast<std::ptrdiff_t>(block_index(stream, 0));
      by_stream[stream] = {first, first + layers_};
    }
    return by_stream;
  }

 private:
  /// Finds the latents of all blocks, one layer per rank in each round. Returns the spectra of all blocks on
  /// every rank. Collective.
  std::vector<Spectrum> find_latents() {
    std::vector<Spectrum> spectra(rule_.streams.size() * to_size(layers_));
    for (std::int64_t first = 0; first < layers_; first += comm_.size()) {
      stop_where_asked(comm_);
      find_latents_of_layer(first);
    }
    for (const BlockLatents& block : latents_)
      spectra[block_index(block.stream, block.layer)] = block.latents.eigenvalues;
    for (Spectrum& spectrum : spectra) {
      spectrum.resize(to_size(columns()), 0.0);
      comm_.sum(spectrum.data(), columns());
    }
    return spectra;
  }

  std::int64_t columns() const { return heads_ * d_; }

  /// Blocks are ordered by stream, as the job names them, then by layer.
  std::size_t block_index(Stream stream, std::int64_t layer) const {
    const auto s = std::find(rule_.streams.begin(), rule_.streams.end(), stream) - rule_.streams.begin();
    return to_size(s * layers_ + layer);
  }

  /// Returns the covariance of this rank's layer in the round of layers that starts with `first`; empty if
  /// the round has no layer for this rank. Collective.
  std::vector<double> covariance(Stream stream, std::int64_t first) const {
    const std::int64_t rank_layer = first + comm_.rank();
    std::vector<std::int64_t> heads(rank_layer < layers_ ? to_size(heads_) : 0);
    if (!calibration_.grams.empty()) {
      std::iota(heads.begin(), heads.end(), rank_layer * heads_);
      return covariance_of(calibration_.grams.at(stream).fit, heads, d_);
    }
    std::iota(heads.begin(), heads.end(), 0);
    std::vector<double> covariance;
    for (std::int64_t layer = first; layer < std::min(layers_, first + comm_.size()); ++layer) {
      const HeadGram& gram = calibration_.layer_grams.at(stream)[to_size(layer)];
      if (layer == rank_layer)
        covariance = covariance_of(gram, heads, d_);
      else
        covariance_of(gram, {}, d_);
    }
    return covariance;
  }

  std::vector<double> mean(Stream stream, std::int64_t layer) const {
    if (calibration_.grams.empty()) return calibration_.layer_grams.at(stream)[to_size(layer)].mean;
    const auto first = calibration_.grams.at(stream).fit.mean.begin() + layer * columns();
    return {first, first + columns()};
  }

  /// Finds the latents of this rank's layer in the round that starts with `first`. Collective.
  void find_latents_of_layer(std::int64_t first) {
    const std::int64_t layer = first + comm_.rank(), metric_size = heads_ * d_ * d_;
    for (const Stream stream : rule_.streams) {
      std::vector<double> layer_covariance = covariance(stream, first);
      if (layer >= layers_) continue;
      const auto metric = metrics_.at(stream).begin() + layer * metric_size;
      latents_.push_back(
          {stream, layer,
           make_latents(std::move(layer_covariance), {metric, metric + metric_size}, heads_, d_)});
    }
  }

  /// Returns, for each block, the measured loss over the expected loss of its allocation; 1 if the expected
  /// loss is 0. Collective.
  std::vector<double> measured_scales(const MeasuredKl& measure, const std::vector<Spectrum>& spectra,
                                      const Allocation& allocation) const {
    std::vector<double> scales(spectra.size(), 1.0);
    for (const Stream stream : rule_.streams)
      for (std::int64_t layer = 0; layer < layers_; ++layer) {
        const std::size_t b = block_index(stream, layer);
        if (!(allocation.loss[b] > 0)) continue;
        stop_where_asked(comm_);
        PlannedBlock block = make_block(stream, layer, allocation.bands[b], spectra[b]);
        std::int64_t size = 0;
        for (const Band& band : block.bands) size += columns() * band.columns;
        const auto broadcast = [&](std::vector<float>& values, std::int64_t count) {
          values.resize(to_size(count));
          comm_.broadcast(values.data(), count, 0);
        };
        broadcast(block.projection, size);
        broadcast(block.reconstruction, size);
        if (has_gain(block.bands)) broadcast(block.weights, size / columns());
        scales[b] = std::max(measure(stream, layer, block), 1e-12) / allocation.loss[b];
      }
    return scales;
  }

  static Spectrum scaled(Spectrum spectrum, double scale) {
    for (double& value : spectrum) value *= scale;
    return spectrum;
  }

  Allocation allocate(const std::vector<BlockSpectra>& blocks) const {
    const auto all = static_cast<double>(static_cast<std::int64_t>(blocks.size()) * columns());
    if (rule_.bits.is_automatic()) return allocate_bits(blocks, rule_.stored * 2 * all);
    std::vector<Spectrum> spectra;
    spectra.reserve(blocks.size());
    for (const BlockSpectra& block : blocks) spectra.push_back(block.steps);
    if (rule_.bits.width) return allocate_columns(spectra, stored_count(rule_.stored, all));
    return allocate_bands(spectra, rule_.bits.bands);
  }

  /// Sets the block's projection and reconstruction to those of its stored latents, scaled by band; where the
  /// bands share a gain, each latent to its own step, and the block's weights to what errors of these cost.
  void set_maps(const Latents& latents, PlannedBlock& block) const {
    std::int64_t r = 0;
    for (const Band& band : block.bands) r += band.columns;
    block.projection.resize(to_size(columns() * r));
    block.reconstruction.resize(to_size(r * columns()));
    std::int64_t latent = 0;
    for (const Band& band : block.bands) {
      const bool gains = band.coding == Coding::gain;
      const double of_band = band_scale(latents.variances[to_size(latent)], latents.variances.front());
      for (const std::int64_t last = latent + band.columns; latent < last; ++latent) {
        const double variance = latents.variances[to_size(latent)], largest = latents.variances.front(),
                     scale = gains ? 1 / column_step(variance, largest, band.bits) : of_band;
        for (std::int64_t i = 0; i < columns(); ++i) {
          const std::size_t k = to_size(i + latent * columns());
          block.projection[to_size(i * r + latent)] = static_cast<float>(latents.projection[k] * scale);
          block.reconstruction[k] = static_cast<float>(latents.reconstruction[k] / scale);
        }
        if (gains) block.weights.push_back(static_cast<float>(1 / (scale * scale * largest)));
      }
    }
  }

  /// Returns the block of a layer of a stream with these bands; projection and reconstruction on rank 0 only.
  /// Collective.
  PlannedBlock make_block(Stream stream, std::int64_t layer, std::vector<Band> bands,
                          const Spectrum& spectrum) const {
    PlannedBlock block;
    block.bands = std::move(bands);
    block.eigenvalues = spectrum;
    block.mean = block.bias = mean(stream, layer);
    for (const BlockLatents& found : latents_)
      if (found.stream == stream && found.layer == layer) set_maps(found.latents, block);
    send_to_root(block.projection);
    send_to_root(block.reconstruction);
    send_to_root(block.weights);
    return block;
  }

  /// Returns the blocks of all layers, on rank 0. Collective.
  PlannedStreams collect(const std::vector<BlockSpectra>& spectra, const Allocation& allocation) const {
    PlannedStreams planned;
    for (const Stream stream : rule_.streams)
      for (std::int64_t layer = 0; layer < layers_; ++layer) {
        const std::size_t b = block_index(stream, layer);
        const Spectrum& spectrum = has_gain(allocation.bands[b]) ? spectra[b].gain : spectra[b].steps;
        PlannedBlock block = make_block(stream, layer, allocation.bands[b], spectrum);
        block.expected_loss = allocation.loss[b];
        if (comm_.is_root()) planned[stream].push_back(std::move(block));
      }
    return planned;
  }

  /// Moves `values` from the single rank that has any to rank 0. Collective.
  void send_to_root(std::vector<float>& values) const {
    std::vector<std::vector<float>> gathered = comm_.gather(std::move(values));
    values.clear();
    for (std::vector<float>& part : gathered)
      if (!part.empty()) values = std::move(part);
  }

  const Job::Compress& rule_;
  const Calibration& calibration_;
  const Comm& comm_;
  std::int64_t heads_, d_, layers_;
  std::map<Stream, std::vector<double>> metrics_;
  std::vector<BlockLatents> latents_;  // found on this rank
};

}  // namespace

void check_latents(const Job::Compress& rule, const ModelConfig& config) {
  const std::int64_t columns = config.kv_heads * config.head_size;
  if (columns > kMaxEigenvectors) {
    const std::string what = "takes the latents of layers, of which each has " + std::to_string(columns) +
                             " columns, above the " + std::to_string(kMaxEigenvectors) +
                             " whose eigenvectors LAPACK can count";
    if (rule.algorithm == CompressionAlgorithm::latent)
      throw InputError("", "compress.algorithm", "latent", what,
                       "choose headspan, paper-text, paper-code or quantise");
    if (rule.units == LossUnits::measured)  // not if it follows from the effort
      throw InputError("", "compress.units", "measured", what, "leave it out");
  }
  std::int64_t latents = 0;
  for (const Band& band : rule.bits.bands) latents += std::min(band.columns, columns + 1);
  if (latents > columns)
    throw InputError("", "compress.bits", stored_bits().write(rule.bits),
                     "has more latents than the " + std::to_string(columns) + " columns of a layer",
                     "give bands of that many at most");
}

PlannedStreams plan_latents(const Job::Compress& rule, const Calibration& calibration,
                            const MeasuredKl& measure) {
  return LatentPlanner(rule, calibration).plan(measure);
}

std::map<Stream, std::vector<double>> loss_scale(const Job::Compress& rule, const Calibration& calibration,
                                                 const MeasuredKl& measure) {
  return LatentPlanner(rule, calibration).loss_scale(measure);
}

}  // namespace headspan
