#include "dist/matrix/local_algebra.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "base/checked.h"
#include "dist/matrix/scalapack.h"

namespace headspan {

std::vector<double> gemm(const char* transa, const char* transb, std::int64_t m, std::int64_t n,
                         std::int64_t k, const double* a, std::int64_t lda, const double* b,
                         std::int64_t ldb) {
  std::vector<double> c(to_size(m * n));
  const int rows = to_int(m), columns = to_int(n), inner = to_int(k), ld_a = to_int(lda), ld_b = to_int(ldb);
  const double one = 1, zero = 0;
  dgemm_(transa, transb, &rows, &columns, &inner, &one, a, &ld_a, b, &ld_b, &zero, c.data(), &rows);
  return c;
}

void mirror_lower(double* a, std::int64_t n, std::int64_t lda) {
  for (std::int64_t j = 0; j < n; ++j)
    for (std::int64_t i = j + 1; i < n; ++i) a[j + i * lda] = a[i + j * lda];
}

bool invert_positive_definite(double* a, std::int64_t n) {
  const int order = to_int(n);
  int info = 0;
  dpotrf_("L", &order, a, &order, &info);
  if (info == 0) dpotri_("L", &order, a, &order, &info);
  mirror_lower(a, n, n);
  return info == 0;
}

double sum_of_singular_values(std::int64_t m, std::int64_t n, const double* a, std::int64_t lda) {
  const int rows = to_int(m), columns = to_int(n), one = 1;
  std::vector<double> copy;
  for (std::int64_t j = 0; j < n; ++j) copy.insert(copy.end(), a + j * lda, a + j * lda + m);
  std::vector<double> values(to_size(std::min(m, n)));
  double size = 0, none = 0;
  int info = 0, length = -1;
  const auto run = [&](double* work) {
    dgesvd_("N", "N", &rows, &columns, copy.data(), &rows, values.data(), &none, &one, &none, &one, work,
            &length, &info);
  };
  run(&size);
  length = static_cast<int>(size);
  std::vector<double> work(to_size(length));
  run(work.data());
  if (info != 0) return std::numeric_limits<double>::quiet_NaN();
  return std::accumulate(values.begin(), values.end(), 0.0);
}

}  // namespace headspan
