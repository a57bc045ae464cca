#include "stats/gram/product_kind.h"

#include <string>
#include <vector>

#include "base/process/cpu_dispatch.h"
#include "base/provenance.h"
#include "dist/blas_core.h"
#include "dist/fastest_choice.h"
#include "dist/matrix/scalapack.h"
#include "dist/onednn.h"
#include "stats/gram/float_gemm.h"
#include "stats/gram/integer_kernel.h"
#include "stats/gram/syrk_kernel.h"

namespace headspan {
namespace {

constexpr int kSize = 384, kTokens = 512;  // of the panel that is measured
constexpr const char *kKernel = "kernel", *kLibrary = "library", *kIntegers = "integers";

/// A product as a library forms it, from a panel in its type and less the mean.
template <class P>
class LibraryProduct;

template <>
class LibraryProduct<double> {
 public:
  explicit LibraryProduct(Precision) {}

  void add(const PanelOperands<double>& panel, std::vector<double>& sums) const {
    const double one = 1;
    dgemm_("N", "T", &kSize, &kSize, &kTokens, &one, panel.rows, &kSize, panel.columns, &kSize, &one,
           sums.data(), &kSize);
  }
};

template <>
class LibraryProduct<float> {
 public:
  explicit LibraryProduct(Precision precision) : gemm_(FloatGemm::best(precision)) {}

  void add(const PanelOperands<float>& panel, std::vector<double>& sums) {
    gemm_.open(panel);
    gemm_.multiply(0, kSize, 0, kSize, block_.data());
    add_values(block_.data(), kSize * kSize, sums.data());
  }

 private:
  FloatGemm gemm_;
  std::vector<float> block_ = std::vector<float>(std::size_t{kSize} * kSize);
};

/// Returns the name of the library if it is faster than `own`, the kernel for integers or else SyrkKernel,
/// whose name it returns otherwise.
template <class P>
std::string measured_kind(Precision precision, const std::string& own, bool in_integers) {
  const std::vector<P> values(std::size_t{kSize} * kTokens, P(1));
  const PanelOperands<P> panel{values.data(), values.data(), kSize, kSize, kTokens};
  std::vector<double> sums(std::size_t{kSize} * kSize), mean(kSize);
  const std::vector<std::int64_t> first_row(kSize);  // the whole square, as the library forms it
  const PanelOrigin origin{mean.data(), mean.data()};
  const Staircase square{sums.data(), kSize, kSize, kSize, first_row.data()};
  SyrkKernel<P> kernel(precision);
  IntegerKernel integers;
  LibraryProduct<P> library(precision);
  const auto add = [&] {
    if (in_integers)
      integers.add(panel, origin, square, 0, [] {});
    else
      kernel.add(panel, origin, square, [] {});
  };
  const std::vector<double> seconds = least_seconds({add, [&] { library.add(panel, sums); }});
  return fastest(own, {{own, 1 / seconds[0]}, {kLibrary, 1 / seconds[1]}});
}

}  // namespace

ProductKind fastest_product(Precision precision) {
  const bool doubles = multiplies_doubles(precision);
  const bool integers = precision == Precision::split && has_vnni();
  const std::string own = integers ? kIntegers : kKernel;
  const char* const type = integers                           ? "split"
                           : doubles                          ? "double"
                           : precision == Precision::bfloat16 ? "bfloat16"
                                                              : "float";
  const Choice choice{std::string("products-") + type,
                      program_version() + "\n" + describe_blas() + (has_onednn() ? "\noneDNN" : ""),
                      {own, kLibrary}};
  const std::string chosen = kept_choice(choice, [&] {
    return doubles ? measured_kind<double>(Precision::float64, own, integers)
                   : measured_kind<float>(precision, own, false);
  });
  if (chosen == kLibrary) return ProductKind::library;
  return integers ? ProductKind::integers : ProductKind::kernel;
}

bool multiplies_integers(const Comm& comm) {
  return comm.max(fastest_product(Precision::split) == ProductKind::integers ? 0 : 1) == 0;
}

}  // namespace headspan
