// How the products of a panel are formed: by kernels of our own (stats/gram/syrk_kernel.h, integer_kernel.h)
// or by a library, BLAS or oneDNN, whichever is the faster of these two. Not the products: PanelProduct has
// them.
#pragma once

#include "dist/comm/mpi.h"
#include "stats/gram/panel_values.h"

namespace headspan {

enum class ProductKind { kernel, library, integers };

/// Returns the kernel unless the library is a tenth faster for products of this precision, on one core. For
/// `split` the kernel is that for integers where the processor multiplies them. A kept choice
/// (dist/fastest_choice.h), measured in 50 ms. Local.
ProductKind fastest_product(Precision precision);

/// Returns whether `split` multiplies 8-bit integers on all processors of comm. Collective over comm.
bool multiplies_integers(const Comm& comm);

}  // namespace headspan
