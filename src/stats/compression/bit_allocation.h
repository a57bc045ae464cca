// How many bits each latent gets, over all layers and streams at once, so that the expected loss is least for
// what may be stored. Reverse water-filling, with what a quantiser really does: the columns of a band share
// one step, which the largest of them decides, and each band costs a scale. Local, the same on every rank.
#pragma once

#include <cstdint>
#include <vector>

#include "base/bands.h"

namespace headspan {

/// Of one layer and stream: eigenvalues descending.
using Spectrum = std::vector<double>;

struct Allocation {
  std::vector<std::vector<Band>> bands;  ///< [block] of its first latents; the others are not stored
  std::vector<double> loss;              ///< [block] expected
};

/// Bands of 8, 6, 5, 4, 3 and 2 bits, more before fewer, several of the same bits where values differ much in
/// size. Minimises the sum of expected losses and mu times the bytes, for the least mu whose bytes do not
/// exceed `bytes` a token: each block by dynamic programming over where its bands begin.
Allocation allocate_bits(const std::vector<Spectrum>& spectra, double bytes);

/// The `count` largest eigenvalues of all, as they are (kPlainBits); ties to the earlier block.
Allocation allocate_columns(const std::vector<Spectrum>& spectra, std::int64_t count);

/// The same bands in every block, no more columns than a block has.
Allocation allocate_bands(const std::vector<Spectrum>& spectra, const std::vector<Band>& bands);

/// Mean squared error of a Gaussian of this variance between levels (k + 1/2) step.
double quantisation_error(double variance, double step);

/// The step of a band of latents: their variances, descending, in `bits` bits, with the largest magnitude
/// that a token is expected to have.
double expected_step(const double* variances, std::int64_t count, int bits);

}  // namespace headspan
