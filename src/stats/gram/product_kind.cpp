#include "stats/gram/product_kind.h"

#include <functional>
#include <map>
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

/// Returns the fastest of `words`; the first one is the usual one.
template <class P>
std::string measured_kind(Precision precision, const std::vector<std::string>& words) {
  const std::vector<P> values(std::size_t{kSize} * kTokens, P(1));
  const PanelOperands<P> panel{values.data(), values.data(), kSize, kSize, kTokens};
  std::vector<double> sums(std::size_t{kSize} * kSize), mean(kSize);
  const std::vector<std::int64_t> first_row(kSize);  // the whole square, as the library forms it
  const PanelOrigin origin{mean.data(), mean.data()};
  const Staircase square{sums.data(), kSize, kSize, kSize, first_row.data()};
  SyrkKernel<P> kernel(precision);
  IntegerKernel integers;
  LibraryProduct<P> library(precision);
  const std::map<std::string, std::function<void()>> all{
      {kKernel, [&] { kernel.add(panel, origin, square, [] {}); }},
      {kIntegers, [&] { integers.add(panel, origin, square, 0, [] {}); }},
      {kLibrary, [&] { library.add(panel, sums); }}};
  std::vector<std::function<void()>> ways;
  for (const std::string& word : words) ways.push_back(all.at(word));
  const std::vector<double> seconds = least_seconds(ways);
  std::map<std::string, double> speeds;
  for (std::size_t i = 0; i < words.size(); ++i) speeds[words[i]] = 1 / seconds[i];
  return fastest(words.front(), speeds);
}

}  // namespace

ProductKind fastest_product(Precision precision) {
  const bool doubles = multiplies_doubles(precision);
  const bool integers = precision == Precision::split && has_vnni();
  const char* const type = integers                           ? "split"
                           : doubles                          ? "double"
                           : precision == Precision::bfloat16 ? "bfloat16"
                                                              : "float";
  const Choice choice{std::string("products-") + type,
                      program_version() + "\n" + describe_blas() + (has_onednn() ? "\noneDNN" : ""),
                      {integers ? kIntegers : kKernel, kLibrary}};
  const std::string chosen = kept_choice(choice, [&] {
    return doubles ? measured_kind<double>(Precision::float64, choice.candidates)
                   : measured_kind<float>(precision, choice.candidates);
  });
  return chosen == kLibrary  ? ProductKind::library
         : chosen == kKernel ? ProductKind::kernel
                             : ProductKind::integers;
}

bool multiplies_integers(const Comm& comm) {
  return comm.max(fastest_product(Precision::split) == ProductKind::integers ? 0 : 1) == 0;
}

}  // namespace headspan
