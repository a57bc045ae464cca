// Copies a part of one distributed matrix to another, whatever their blocks and grids: what ScaLAPACK's
// p?gemr2d does, which counts the elements of a rank's array in 32 bits.
#pragma once

#include "dist/matrix/matrix.h"

namespace headspan {

/// Fills `to` with the part of `from` that begins at (row, column). Their grids hold the same ranks in the
/// same order. Throws std::bad_alloc. Collective over them.
void copy_part(const Matrix& from, std::int64_t row, std::int64_t column, Matrix& to);

}  // namespace headspan
