// Checks whether the numbers of a Gram file can come from any data. Linear in their number, so that it cannot
// find everything: only a factorisation shows whether a whole Gram is positive semidefinite.
#pragma once

#include <cstdint>
#include <string>

#include "io/outputs/gram_file.h"

namespace headspan {

// A Gram is refused if it holds a number that is not finite, a negative sum of squares, squares of no tokens,
// or a product that exceeds the Cauchy-Schwarz bound or differs from its mirror image by more than rounding.

/// Checks a Gram that was read into a matrix, in tiles of head_size, from `group` of the file at `path`.
/// Throws AgreedError. Collective over the matrix's grid.
void check_gram(const std::string& path, const std::string& group, const GramPart& gram,
                std::int64_t head_size);

/// Checks the Gram of a stream and part ("fit" or "heldout") in a file, a row of tiles at a time. Throws
/// InputError. Local.
void check_gram(const H5File& file, const GramStream& stream, const std::string& part);

/// Checks the moments of attention: the scale of a layer must be positive, each matrix symmetric and positive
/// semidefinite. Throws InputError. Local.
void check_attention(const std::string& path, const GramAttention& attention);

}  // namespace headspan
