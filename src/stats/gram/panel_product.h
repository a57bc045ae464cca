// PanelProduct: adds the product of one panel to the lower triangle of tiles of a distributed Gram: C += x
// y^T on the tiles that this rank owns, in FP64 whatever the type of the products. x and y are the rows and
// columns of the panel less the shift, rounded as the precision says. By kernels or libraries
// (product_kind.h). Local: PanelExchange communicates.
#pragma once

#include <functional>
#include <variant>
#include <vector>

#include "dist/matrix/large_array.h"
#include "dist/matrix/panel_exchange.h"
#include "stats/gram/float_gemm.h"
#include "stats/gram/integer_kernel.h"
#include "stats/gram/panel_values.h"
#include "stats/gram/product_kind.h"
#include "stats/gram/syrk_kernel.h"

namespace headspan {

class PanelProduct {
 public:
  explicit PanelProduct(Precision precision) : PanelProduct(precision, fastest_product(precision)) {}
  PanelProduct(Precision precision, ProductKind kind);
  /// Returns how values are rounded before they are multiplied. Integers are rounded about zero and need no
  /// more.
  Precision rounding() const {
    return std::holds_alternative<IntegerKernel>(method_) ? Precision::float64 : precision_;
  }

  /// Adds gram[i, j] += sum_t x[i, t] y[j, t] for the local elements on and below the diagonal of the whole
  /// Gram; what lies above it in diagonal tiles is undefined afterwards. `shift`: [D]. Calls `progress`
  /// between blocks. Products in FP32 are summed in FP32 for 768 tokens by a kernel, and for the whole panel
  /// by a library. Leaves out the blocks of columns from `summed` on. Throws std::bad_alloc.
  template <class T>
  void add(Matrix& gram, const PanelOperands<T>& panel, const std::vector<double>& shift,
           const std::function<void()>& progress, std::int64_t summed);
  template <class T>
  void add(Matrix& gram, const PanelOperands<T>& panel, const std::vector<double>& shift,
           const std::function<void()>& progress) {
    add(gram, panel, shift, progress, gram.columns().size);
  }

 private:
  /// Libraries multiply a copy of the panel: rows and columns less the shift, rounded.
  struct DoubleBlas {
    LargeArray<double> copy[2];
  };
  struct FloatLibrary {
    explicit FloatLibrary(Precision precision) : gemm(FloatGemm::best(precision)) {}

    FloatGemm gemm;
    LargeArray<float> copy[2];
    LargeArray<float> block;  // at most 64 MiB
  };

  Precision precision_;
  std::variant<SyrkKernel<double>, SyrkKernel<float>, IntegerKernel, DoubleBlas, FloatLibrary> method_;
};

}  // namespace headspan
