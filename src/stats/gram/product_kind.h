// How the products of a panel are formed: by kernels of our own (stats/gram/syrk_kernel.h) or by a library,
// BLAS or oneDNN, whichever is the faster of these two. Not the products: PanelProduct has them.
#pragma once

#include "stats/gram/panel_values.h"

namespace headspan {

enum class ProductKind { kernel, library };

/// Returns the kernel unless the library is a tenth faster for products of this precision, on one core. A
/// kept choice (dist/fastest_choice.h), measured in 50 ms. Local.
ProductKind fastest_product(Precision precision);

}  // namespace headspan
