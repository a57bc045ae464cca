#include "model/weights/linear.h"

#include <algorithm>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "dist/kernels/linear_product.h"
#include "model/kernels/skinny_gemm.h"

namespace headspan {
namespace {

constexpr std::int64_t kGrain = 1 << 14;  // the fewest weights that are worth a thread

bool is_float_or_bfloat16(const at::Tensor& x) {
  return x.scalar_type() == at::kFloat || x.scalar_type() == at::kBFloat16;
}

/// Returns whether LibTorch multiplies matrices of this type as fast as float32 ones. If the processor has no
/// instruction for it, bfloat16 is multiplied one number at a time, 40 times slower; some versions do not
/// multiply float16 at all.
bool multiplies_fast(at::ScalarType type) {
#if defined(__x86_64__)
  static const bool bfloat16 = __builtin_cpu_supports("avx512bf16") != 0;
#else
  static const bool bfloat16 = false;
#endif
  return type == at::kBFloat16 ? bfloat16 : type != at::kHalf;
}

template <class W>
void add_product(const at::Tensor& x, const at::Tensor& weight, at::Tensor& y) {
  const std::int64_t outputs = weight.size(0), inputs = weight.size(1);
  const auto* rows = x.data_ptr<float>();
  const auto* matrix = weight.data_ptr<W>();
  auto* out = y.data_ptr<float>();
  at::parallel_for(0, outputs, std::max<std::int64_t>(1, kGrain / inputs),
                   [&](std::int64_t begin, std::int64_t end) {
                     skinny_gemm_transposed(rows, inputs, x.size(0), matrix + begin * inputs, inputs,
                                            end - begin, inputs, out + begin, outputs);
                   });
}

at::Tensor apply_to_few_rows(const Linear& linear, const at::Tensor& x) {
  const at::Tensor wide = x.to(at::kFloat).contiguous();
  at::Tensor y = at::zeros({x.size(0), linear.weight.size(0)}, at::kFloat);
  if (linear.bias.defined()) y.add_(linear.bias);
  if (linear.weight.scalar_type() == at::kFloat)
    add_product<float>(wide, linear.weight, y);
  else
    add_product<c10::BFloat16>(wide, linear.weight, y);
  return y.to(x.scalar_type());
}

template <class W>
LinearOperands<W> operands_of(const at::Tensor& x, const at::Tensor& weight) {
  return {x.data_ptr<float>(), x.size(0), x.size(1), static_cast<const W*>(weight.data_ptr()),
          weight.size(0)};
}

at::Tensor apply_in_float(const Linear& linear, const at::Tensor& x) {
  const at::Tensor rows = x.contiguous(), weight = linear.weight.contiguous();
  at::Tensor y = at::empty({x.size(0), weight.size(0)}, x.options());
  auto* const out = y.data_ptr<float>();
  if (weight.scalar_type() == at::kFloat)
    multiply_fastest(operands_of<float>(rows, weight), out);
  else
    multiply_fastest(operands_of<std::uint16_t>(rows, weight), out);
  return linear.bias.defined() ? y.add_(linear.bias) : y;
}

}  // namespace

at::Tensor apply(const Linear& linear, const at::Tensor& x) {
  if (x.is_cpu() && x.size(0) <= kMostSkinnyRows && is_float_or_bfloat16(x) &&
      is_float_or_bfloat16(linear.weight))
    return apply_to_few_rows(linear, x);
  if (x.is_cpu() && !multiplies_fast(x.scalar_type()))
    return apply(linear, x.to(at::kFloat)).to(x.scalar_type());
  if (x.is_cpu() && x.scalar_type() == at::kFloat && is_float_or_bfloat16(linear.weight))
    return apply_in_float(linear, x);
  const at::Tensor weight = linear.weight.to(x.scalar_type());
  if (linear.bias.defined()) return at::addmm(linear.bias.to(x.scalar_type()), x, weight.t());
  return at::mm(x, weight.t());  // a transposed view, which BLAS takes without a copy
}

at::Tensor product(const at::Tensor& x, const at::Tensor& matrix) {
  if (!x.is_cpu() || x.scalar_type() != at::kFloat || x.size(0) > kMostSkinnyRows) return at::mm(x, matrix);
  const std::int64_t inputs = matrix.size(0), outputs = matrix.size(1);
  at::Tensor y = at::zeros({x.size(0), outputs}, x.options());
  const auto* rows = x.data_ptr<float>();
  const auto* columns = matrix.data_ptr<float>();
  auto* out = y.data_ptr<float>();
  at::parallel_for(0, outputs, std::max<std::int64_t>(1, kGrain / inputs),
                   [&](std::int64_t begin, std::int64_t end) {
                     skinny_gemm(rows, inputs, x.size(0), columns + begin, outputs, end - begin, inputs,
                                 out + begin, outputs);
                   });
  return y;
}

}  // namespace headspan
