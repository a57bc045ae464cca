// Allocates bits to latents, over all layers and streams at once, so that the expected loss is least for the
// bytes that may be stored: reverse water-filling for a real quantiser, where the columns of a band share one
// step, which the largest of them determines, and each band costs a scale. Not the latents themselves
// (stats/compression/latents.h). Local, the same on every rank.
#pragma once

#include <cstdint>
#include <vector>

#include "base/bands.h"

namespace headspan {

/// The eigenvalues of a block (the latents of one layer and stream), descending.
using Spectrum = std::vector<double>;

struct Allocation {
  std::vector<std::vector<Band>> bands;  ///< by block: of its first latents; the others are not stored
  std::vector<double> loss;              ///< by block: expected
};

/// What the latents of a block cost if they are stored in bands with a step each, and in bands that share a
/// gain (Coding::gain). One of the two may be empty: the block is then stored in the other way.
struct BlockSpectra {
  Spectrum steps, gain;
};

/// Allocates bands of 8 to 1 bits, in this order, with steps possibly several of the same bits.
/// Minimises the sum of expected losses plus mu times the bytes, for the least mu that needs at most `bytes`
/// per token: for each block bands with steps, by dynamic programming over where they begin, or with a gain,
/// for eight latents (one in small blocks) at a time, whichever costs less.
Allocation allocate_bits(const std::vector<BlockSpectra>& spectra, double bytes);

/// Keeps the latents of the `count` largest eigenvalues of all blocks unquantised (kPlainBits); ties go to
/// the earlier block.
Allocation allocate_columns(const std::vector<Spectrum>& spectra, std::int64_t count);

/// Gives every block the same bands, which have at most as many columns as a block.
Allocation allocate_bands(const std::vector<Spectrum>& spectra, const std::vector<Band>& bands);

/// Returns the mean squared error of a Gaussian of this variance, rounded to levels (k + 1/2) step.
double quantisation_error(double variance, double step);

/// Returns the mean squared error of a normal number of variance 1 in `bits` bits, rounded to half steps of
/// normal_step(bits).
double normal_error(int bits);

/// Returns the step of a band of `count` latents in `bits` bits, from the largest magnitude that a token is
/// expected to have. variances: [count], descending.
double expected_step(const double* variances, std::int64_t count, int bits);

}  // namespace headspan
