#include "model/forward/norm.h"

#include <cmath>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "model/core/tensor_comm.h"
#include "model/kernels/row_kernels.h"

namespace headspan {
namespace {

constexpr std::int64_t kGrain = 64;  // the fewest rows that are worth a thread

/// Returns mean(x^2) of each row of x: [rows, width], computed in float64: [rows].
template <class T>
at::Tensor mean_squares(const at::Tensor& x) {
  const std::int64_t width = x.size(1);
  const T* in = x.data_ptr<T>();
  at::Tensor means = at::empty({x.size(0)}, at::kDouble);
  double* out = means.data_ptr<double>();
  at::parallel_for(0, x.size(0), kGrain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row)
      out[row] = sum_of_squares(in + row * width, width) / static_cast<double>(width);
  });
  return means;
}

template <class T>
at::Tensor scale_rows(const at::Tensor& x, const at::Tensor& means, const at::Tensor& gain, double eps) {
  const std::int64_t width = x.size(1);
  at::Tensor y = at::empty(x.sizes(), x.options());
  const T *in = x.data_ptr<T>(), *gains = gain.data_ptr<T>();
  T* out = y.data_ptr<T>();
  const double* mean = means.data_ptr<double>();
  at::parallel_for(0, x.size(0), kGrain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const T factor = static_cast<T>(1 / std::sqrt(mean[row] + eps));
      scale_row(in + row * width, factor, gains, width, out + row * width);
    }
  });
  return y;
}

/// Normalises a matrix in float32 or float64 on the CPU, in two passes over memory.
template <class T>
at::Tensor norm_rows(const at::Tensor& x, const at::Tensor& gain, double eps, const DeviceComm* comm) {
  at::Tensor means = mean_squares<T>(x);
  if (comm != nullptr) {
    sum_over(*comm, means);
    means.div_(comm->size());
  }
  return scale_rows<T>(x, means, gain, eps);
}

/// Normalises any dtype, with the operations of transformers in their order.
at::Tensor norm_plain(const at::Tensor& x, const at::Tensor& gain, double eps, bool round_once,
                      const DeviceComm* comm) {
  const at::Tensor wide = x.to(x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
  at::Tensor mean = wide.square().mean(-1, true);
  if (comm != nullptr) {
    sum_over(*comm, mean);
    mean.div_(comm->size());
  }
  const at::Tensor unit = wide * (mean + eps).rsqrt();
  return round_once ? (gain * unit).to(x.scalar_type()) : unit.to(x.scalar_type()).mul_(gain);
}

}  // namespace

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& gain, double eps, bool round_once,
                    const DeviceComm* comm) {
  if (comm != nullptr && comm->size() == 1) comm = nullptr;
  const at::Tensor rows = x.reshape({-1, x.size(-1)});
  if (x.is_cpu() && x.scalar_type() == at::kFloat)
    return norm_rows<float>(rows, gain, eps, comm).view(x.sizes());
  if (x.is_cpu() && x.scalar_type() == at::kDouble)
    return norm_rows<double>(rows, gain, eps, comm).view(x.sizes());
  return norm_plain(x, gain, eps, round_once, comm);
}

at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& gain, const at::Tensor& bias, double eps) {
  if (x.is_cpu() && x.scalar_type() == at::kHalf) {  // which some versions of LibTorch lack
    const auto wide = [](const at::Tensor& t) { return t.defined() ? t.to(at::kFloat) : t; };
    return layer_norm(wide(x), wide(gain), wide(bias), eps).to(at::kHalf);
  }
  return at::layer_norm(x, {x.size(-1)}, gain, bias, eps);
}

}  // namespace headspan
