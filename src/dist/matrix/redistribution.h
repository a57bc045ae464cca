// Copies a submatrix of one distributed matrix to another with any blocks and grid. ScaLAPACK's p?gemr2d does
// the same, but counts the elements on a rank in 32 bits.
#pragma once

#include "dist/matrix/matrix.h"

namespace headspan {

/// Fills `to` with the submatrix of `from` that begins at (row, column). Their grids must consist of the same
/// ranks in the same order. Throws std::bad_alloc. Collective over them.
void copy_submatrix(const Matrix& from, std::int64_t row, std::int64_t column, Matrix& to);

}  // namespace headspan
