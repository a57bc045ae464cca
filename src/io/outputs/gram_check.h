// The check of what a Gram file holds: whether its numbers can be those of any data. Linear in their number,
// so that not everything is found: that the Gram of all heads together is positive semidefinite is for its
// factors to tell.
#pragma once

#include <cstdint>
#include <string>

#include "io/outputs/gram_file.h"

namespace headspan {

// A Gram is refused for numbers that are not finite, negative sums of squares, any squares of no tokens, and
// products that are larger than the squares allow or differ from their mirror image by more than rounding.

/// Of a Gram that was read into a matrix. `group` of the file at `path` is where it stands, in tiles of
/// head_size. Throws AgreedError. Collective over the matrix's grid.
void check_gram(const std::string& path, const std::string& group, const GramPart& gram,
                std::int64_t head_size);

/// Of a Gram in a file, "fit" or "heldout", a row of tiles at a time. Throws InputError. Local.
void check_gram(const H5File& file, const GramStream& stream, const std::string& part);

/// Likewise of what attention does: the scale of a layer has to be above 0, each matrix symmetric and
/// positive semidefinite. Throws InputError. Local.
void check_attention(const std::string& path, const GramAttention& attention);

}  // namespace headspan
