#include "device/device_forward.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>

#include "base/checked.h"
#include "stats/regression/joint_fit.h"

namespace headspan {
namespace {

using Choices = std::vector<std::optional<std::vector<std::int64_t>>>;  // no value: left to the host

constexpr double kSafePivot = 1e4;  // pivots above this many tolerances are safe without pivoting
constexpr double kTie = 1e-10;      // candidates whose gains in R² differ by less are left to the host
constexpr std::int64_t kBatchBytes = std::int64_t{1} << 31;

/// Returns the bytes that a target takes: its tiles, also transposed, and its moments in two orders.
std::int64_t target_bytes(std::int64_t side) {
  return 4 * side * side * static_cast<std::int64_t>(sizeof(double));
}

/// Forward selection for targets that have the same number of candidates.
class Batch {
 public:
  Batch(const RegressionData& data, std::vector<const ForwardProblem*> problems, at::Device device)
      : rules_(data.rules),
        d_(data.layout.head_size),
        count_(static_cast<std::int64_t>(problems.size())),
        heads_(static_cast<std::int64_t>(problems.front()->heads.size())),
        device_(device) {
    std::vector<double> variance;
    for (const ForwardProblem* problem : problems)
      for (const double value : gather(data.sst, problem->heads, d_)) variance.push_back(value);
    const at::Tensor sst = on_device(variance).view({count_, heads_ * d_});
    const at::Tensor scale = at::where(sst > 0, sst.rsqrt(), at::zeros_like(sst));
    residual_ = moments(problems).mul_(scale.unsqueeze(2)).mul_(scale.unsqueeze(1));
    used_ = at::zeros({count_, heads_ - 1}, at::dtype(at::kBool).device(device));
    safe_ = at::ones({count_}, at::dtype(at::kBool).device(device));
    batch_ = at::arange(count_, at::dtype(at::kLong).device(device));
  }

  Choices run(std::int64_t count) {
    const std::int64_t steps = std::min(count, heads_ - 1);
    std::vector<at::Tensor> chosen;
    for (std::int64_t regressors = d_; regressors <= steps * d_ && !rules_.too_few(regressors);
         regressors += d_)
      chosen.push_back(step(regressors, regressors < steps * d_));
    const at::Tensor safe = safe_.to(at::kCPU);
    for (at::Tensor& choice : chosen) choice = choice.to(at::kCPU);
    Choices choices(to_size(count_));
    for (std::int64_t b = 0; b < count_; ++b) {
      if (!safe.data_ptr<bool>()[b]) continue;
      choices[to_size(b)].emplace();
      for (const at::Tensor& choice : chosen)
        choices[to_size(b)]->push_back(choice.data_ptr<std::int64_t>()[b]);
    }
    return choices;
  }

 private:
  template <class T>
  at::Tensor on_device(const std::vector<T>& values) const {
    return at::tensor(values, at::CppTypeToScalarType<T>::value).to(device_);
  }

  /// Copies a tile to `out`, [d, d], dense.
  void copy_tile(const TileView& tile, double* out) const {
    for (std::int64_t j = 0; j < d_; ++j) std::copy_n(tile.values + j * tile.leading, d_, out + j * d_);
  }

  /// Returns the tiles of each problem, in the order of tiles_among, row-major: [count, tiles, d, d]. A tile
  /// is transposed if the problem has its two heads in the opposite order of the Gram.
  at::Tensor oriented_tiles(const std::vector<const ForwardProblem*>& problems) const {
    const std::int64_t tiles = heads_ * (heads_ + 1) / 2;
    const at::Tensor host =
        at::empty({count_, tiles, d_, d_}, at::dtype(at::kDouble).pinned_memory(!device_.is_cpu()));
    std::vector<std::uint8_t> in_order(to_size(count_ * tiles));
    double* const values = host.data_ptr<double>();
#pragma omp parallel for
    for (std::int64_t b = 0; b < count_; ++b) {
      const ForwardProblem& problem = *problems[to_size(b)];
      double* out = values + b * tiles * d_ * d_;
      std::int64_t k = 0;
      for (std::int64_t row = 0; row < heads_; ++row)
        for (std::int64_t column = 0; column <= row; ++column, ++k) {
          copy_tile(problem.tiles[k], out);
          out += d_ * d_;
          in_order[to_size(b * tiles + k)] =
              problem.heads[to_size(row)] >= problem.heads[to_size(column)] ? 1 : 0;
        }
    }
    const at::Tensor columns = host.to(device_, /*non_blocking=*/true);  // column-major tiles
    const at::Tensor keep = on_device(in_order).to(at::kBool).view({count_, tiles, 1, 1});
    return at::where(keep, columns.transpose(2, 3), columns);
  }

  /// Returns the moments of each problem's heads, both triangles: [count, heads * d, heads * d].
  at::Tensor moments(const std::vector<const ForwardProblem*>& problems) const {
    std::vector<std::int64_t> below, above;
    for (std::int64_t row = 0; row < heads_; ++row)
      for (std::int64_t column = 0; column <= row; ++column) {
        below.push_back(row * heads_ + column);
        above.push_back(column * heads_ + row);
      }
    const at::Tensor tiles = oriented_tiles(problems);
    at::Tensor all = at::empty({count_, heads_ * heads_, d_, d_}, tiles.options());
    all.index_copy_(1, on_device(above), tiles.transpose(2, 3));
    all.index_copy_(1, on_device(below), tiles);
    return all.view({count_, heads_, heads_, d_, d_})
        .permute({0, 1, 3, 2, 4})
        .reshape({count_, heads_ * d_, heads_ * d_});
  }

  /// Chooses the next candidate of every target: [count]. `update`: another step follows.
  at::Tensor step(std::int64_t regressors, bool update) {
    const at::Tensor lower = factor_candidates(regressors);
    at::Tensor choice = regressors == d_ ? at::zeros_like(batch_) : best_candidates(lower);
    used_.scatter_(1, choice.unsqueeze(1), true);
    if (update) remove_explained_by(choice, lower);
    return choice;
  }

  /// Returns the factors of the remaining candidates' residuals: [count, candidates, d, d].
  at::Tensor factor_candidates(std::int64_t regressors) {
    const at::Tensor used = used_.unsqueeze(2).unsqueeze(3);
    const at::Tensor tiles = residual_.view({count_, heads_, d_, heads_, d_})
                                 .diagonal(0, 1, 3)
                                 .permute({0, 3, 1, 2})
                                 .narrow(1, 0, heads_ - 1);
    const auto [lower, info] = at::linalg_cholesky_ex(at::where(used, at::eye(d_, tiles.options()), tiles));
    const at::Tensor pivots = lower.diagonal(0, 2, 3).square().amin(2);
    const at::Tensor safe = info.eq(0).logical_and(pivots > kSafePivot * rules_.pivot_tolerance(regressors));
    safe_.logical_and_(safe.logical_or(used_).all(1));
    return lower;
  }

  /// Returns the candidates that explain most of the targets' residuals: [count].
  at::Tensor best_candidates(const at::Tensor& lower) {
    const at::Tensor cross = residual_.view({count_, heads_, d_, heads_, d_})
                                 .select(1, heads_ - 1)
                                 .narrow(2, 0, heads_ - 1)
                                 .permute({0, 2, 3, 1});  // [count, candidates, d, d of the target]
    const at::Tensor x = at::linalg_solve_triangular(lower, cross, /*upper=*/false);
    const at::Tensor gains = x.square().sum({2, 3}).masked_fill(used_, -1);
    const auto [best, candidates] = gains.topk(2, 1);
    safe_.logical_and_(best.select(1, 0) - best.select(1, 1) > kTie * static_cast<double>(d_));
    return candidates.select(1, 0).contiguous();
  }

  /// Subtracts Z Z^T from the residuals, Z^T = L^-1 G_c with the moments G_c of the chosen candidate, G_cc =
  /// L L^T.
  void remove_explained_by(const at::Tensor& choice, const at::Tensor& lower) {
    const at::Tensor factor =
        lower.reshape({count_ * (heads_ - 1), d_, d_}).index_select(0, batch_ * (heads_ - 1) + choice);
    const at::Tensor rows =
        residual_.view({count_ * heads_, d_, heads_ * d_}).index_select(0, batch_ * heads_ + choice);
    const at::Tensor z = at::linalg_solve_triangular(factor, rows, /*upper=*/false);  // [count, d, heads * d]
    residual_.baddbmm_(z.transpose(1, 2), z, 1, -1);
  }

  const FitRules& rules_;
  std::int64_t d_;
  std::int64_t count_;
  std::int64_t heads_;  // per problem: candidates and target
  at::Device device_;
  at::Tensor residual_;  // [count, heads * d, heads * d]
  at::Tensor used_;      // [count, candidates]
  at::Tensor safe_;      // [count]
  at::Tensor batch_;     // [count] 0, 1, ..
};

/// Returns the end of the batch that begins at tried[first]: problems of the same size that fit in memory.
std::size_t batch_end(const std::vector<ForwardProblem>& problems, const std::vector<std::size_t>& tried,
                      std::size_t first, std::int64_t d) {
  const std::size_t heads = problems[tried[first]].heads.size();
  const auto side = static_cast<std::int64_t>(heads) * d;
  const std::size_t limit = first + to_size(std::max<std::int64_t>(1, kBatchBytes / target_bytes(side)));
  std::size_t end = first;
  while (end < std::min(limit, tried.size()) && problems[tried[end]].heads.size() == heads) ++end;
  return end;
}

Choices choose(const RegressionData& data, const std::vector<ForwardProblem>& problems, std::int64_t count,
               at::Device device) {
  const c10::DeviceGuard on(device);
  Choices choices(problems.size());
  if (data.layout.sizes) return choices;  // heads of one size only
  std::vector<std::size_t> tried;
  for (std::size_t k = 0; k < problems.size(); ++k)
    if (problems[k].heads.size() > 1) tried.push_back(k);
  for (std::size_t first = 0; first < tried.size();) {
    const std::size_t end = batch_end(problems, tried, first, data.layout.head_size);
    std::vector<const ForwardProblem*> batch;
    for (std::size_t k = first; k < end; ++k) batch.push_back(&problems[tried[k]]);
    Choices chosen = Batch(data, batch, device).run(count);
    for (std::size_t k = first; k < end; ++k) choices[tried[k]] = std::move(chosen[k - first]);
    first = end;
  }
  return choices;
}

}  // namespace

ForwardChoices device_forward_choices(at::Device device) {
  return [device](const RegressionData& data, const std::vector<ForwardProblem>& problems,
                  std::int64_t count) { return choose(data, problems, count, device); };
}

std::int64_t device_forward_bytes(const HeadLayout& layout, std::int64_t pool) {
  const std::int64_t heads = std::min(pool + 1, layout.heads());
  const std::int64_t target = target_bytes(heads * layout.head_size);
  return std::min(std::max(kBatchBytes, target), layout.heads() * target);
}

}  // namespace headspan
