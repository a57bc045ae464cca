#include "dist/matrix/local_algebra.h"

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

}  // namespace headspan
