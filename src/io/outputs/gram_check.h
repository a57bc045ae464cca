// The check of a Gram that was read: whether its numbers can be those of any data. Linear in their number, so
// that not everything is found: that the whole is positive semidefinite is for its factors to tell.
#pragma once

#include <cstdint>
#include <string>

#include "io/outputs/gram_file.h"

namespace headspan {

/// Refuses numbers that are not finite, negative sums of squares, and products that are larger than these
/// allow or differ from their mirror image by more than rounding. `group` of the file at `path` is where the
/// Gram stands, in tiles of head_size. Throws AgreedError. Collective over the matrix's grid.
void check_gram(const std::string& path, const std::string& group, const GramPart& gram,
                std::int64_t head_size);

}  // namespace headspan
