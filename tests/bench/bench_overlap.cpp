// overlap, eigenvalues, singular: the overlap of all layers of a model with random weights, hidden size heads
// x head size, without norm gains; and p?syevd and p?gesvd of one layer. Each against the bare LAPACK calls
// of the same shapes in one process: dsyrk and dsyevd of W^T W and dsyevd of each head, or dgesdd of W.
#include <cmath>

#include "app/sources/overlap.h"
#include "base/checked.h"
#include "bench/bench.h"
#include "dist/matrix/linear_algebra.h"
#include "dist/matrix/scalapack.h"

extern "C" void dgesdd_(const char* jobz, const int* m, const int* n, double* a, const int* lda, double* s,
                        double* u, const int* ldu, double* vt, const int* ldvt, double* work,
                        const int* lwork, int* iwork, int* info);

namespace headspan {
namespace {

constexpr double kLeastSpeed = 1 / 1.2;

ModelConfig config_of(const BenchOptions& options) {
  ModelConfig config;
  config.model_type = "llama";
  config.layers = options.layers;
  config.hidden_size = options.heads * options.head_size;
  config.mlp_size = config.vocab_size = 8;
  config.heads = config.kv_heads = options.heads;
  config.head_size = options.head_size;
  config.initializer_range = 0.02;
  return config;
}

/// The LAPACK calls of one projection.
void bare_lapack(std::vector<double>& w, std::vector<double>& gram, std::int64_t size, std::int64_t d) {
  const int n = to_int(size);
  const double one = 1, zero = 0;
  dsyrk_("L", "T", &n, &n, &one, w.data(), &n, &zero, gram.data(), &n);
  std::vector<double> tile(static_cast<std::size_t>(d * d));
  for (std::int64_t h = 0; h < size; h += d) {
    for (std::int64_t j = 0; j < d; ++j)
      std::copy_n(&gram[static_cast<std::size_t>(h + (h + j) * size)], d,
                  &tile[static_cast<std::size_t>(j * d)]);
    local_eigenvalues(tile.data(), d, d);
  }
  local_eigenvalues(gram.data(), size, size);
}

void bare_svd(std::vector<double> w, std::int64_t size) {
  const int n = to_int(size), ld = 1;
  std::vector<double> s(static_cast<std::size_t>(n)), work(1);
  std::vector<int> iwork(8 * s.size());
  int lwork = -1, info = 0;
  for (int pass = 0; pass < 2; ++pass) {
    dgesdd_("N", &n, &n, w.data(), &n, s.data(), nullptr, &ld, nullptr, &ld, work.data(), &lwork,
            iwork.data(), &info);
    lwork = static_cast<int>(work[0]);
    work.resize(static_cast<std::size_t>(lwork));
  }
  HS_ASSERT(info == 0);
}

/// Of the products and of the eigenvalues or singular values of one projection: n^2 (n + 1), 4/3 n^3, 8/3
/// n^3.
double gflop(std::int64_t size, bool svd) {
  const auto n = static_cast<double>(size);
  return 1e-9 * (svd ? 8. / 3 * n * n * n : n * n * (n + 1) + 4. / 3 * n * n * n);
}

std::vector<double> weights(const ModelConfig& config) {
  return Projections(config, 0, Dtype::float32).columns(0, Stream::k, 0, config.hidden_size);
}

Matrix distributed(const Grid& grid, const std::vector<double>& whole, std::int64_t size) {
  Matrix a(grid, size, size, 64);
  for (std::int64_t j = 0; j < a.local_columns(); ++j)
    for (std::int64_t i = 0; i < a.local_rows(); ++i)
      *a.at(i, j) = whole[static_cast<std::size_t>(a.rows().global(grid.row(), i) +
                                                   a.columns().global(grid.column(), j) * size)];
  return a;
}

/// One layer, all ranks.
TurnTimes time_layer(const BenchOptions& options, const Comm& comm, const std::vector<double>& w,
                     std::int64_t size) {
  const GridShape shape = squarest_grid(comm.size());
  const Grid grid(comm, to_int(shape.rows), to_int(shape.columns));
  std::vector<double> gram(w.size()), copy(w);
  const bool svd = options.name == "singular";
  return time_in_turn(
      comm, options.repeats,
      [&] { svd ? bare_svd(w, size) : bare_lapack(copy, gram, size, options.head_size); },
      [&] {
        Matrix a = distributed(grid, w, size);
        if (svd) {
          singular_values(a);
          return;
        }
        Matrix g(grid, size, size, 64);
        multiply_transposed(a, g);
        eigenvalues(g);
      });
}

}  // namespace

bool bench_overlap(const BenchOptions& options, const Comm& comm) {
  const ModelConfig config = config_of(options);
  const std::int64_t size = config.hidden_size;
  std::vector<double> w = weights(config), gram(w.size());
  const std::string shape = "; " + std::to_string(size) + " x " + std::to_string(size);
  if (options.name != "overlap") {
    const TurnTimes times = time_layer(options, comm, w, size);
    return report(options, comm,
                  {(options.name == "singular" ? "singular values of a layer, against dgesdd"
                                               : "eigenvalues of a layer's W^T W, against dsyrk and dsyevd") +
                       shape,
                   "s",
                   times.routine,
                   times.limit,
                   times.speed,
                   kNone,
                   {Resource::fp64, gflop(size, options.name == "singular") / times.routine}});
  }
  const Projections projections(config, 0, Dtype::float32);
  const Log silent(false);
  const std::int64_t pieces = 3 * config.layers;
  const TurnTimes times = time_in_turn(
      comm, options.repeats,
      [&] {
        for (std::int64_t i = comm.rank(); i < pieces; i += comm.size())
          bare_lapack(w, gram, size, options.head_size);
      },
      [&] { compute_overlap(Job::Overlap(), projections, comm, silent, ""); });
  return report(options, comm,
                {"overlap of " + std::to_string(config.layers) + " layers, against dsyrk and dsyevd" + shape,
                 "s",
                 times.routine,
                 times.limit,
                 times.speed,
                 kLeastSpeed,
                 {Resource::fp64, static_cast<double>(pieces) * gflop(size, false) / times.routine}});
}

}  // namespace headspan
