#include "device/integer_product.h"

#include <algorithm>

#include <ATen/ATen.h>
#include <torch/version.h>

#include "base/error.h"

namespace headspan {
namespace {

constexpr double kLargest = 127.0 * 65536;  // in units
constexpr std::int64_t kMaxTokens = 32768;  // 3 * 2^15 * 2^14 < 2^31
constexpr std::int64_t kPadding = 256;   // tokens are padded to a multiple of this, to which cuBLASLt aligns
constexpr std::int64_t kColumns = 1024;  // split at once

/// Returns the last digit, -128 .. 127, of integers and removes it from `numbers`, which keep the other
/// digits.
at::Tensor split_digit(at::Tensor& numbers) {
  at::Tensor digit = (numbers + 128).bitwise_and_(255).sub_(128);
  numbers.sub_(digit).bitwise_right_shift_(8);
  return digit;
}

/// Returns a b^T: [m, n] int32 for a: [m, k] and b: [n, k] int8.
at::Tensor digit_sums(const at::Tensor& a, const at::Tensor& b) {
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 8)
  if (a.is_cuda() && a.size(0) > 16 && b.size(0) % 8 == 0) return at::_int_mm(a, b.t());
#endif
  return at::mm(a.to(at::kDouble), b.to(at::kDouble).t()).to(at::kInt);
}

}  // namespace

IntegerColumns IntegerColumns::narrow(std::int64_t first, std::int64_t count) const {
  return {digits.narrow(0, first, count), reversed.narrow(0, first, count), unit.narrow(0, first, count)};
}

IntegerColumns integer_columns(const at::Tensor& values) {
  const std::int64_t tokens = values.size(0), columns = values.size(1);
  const std::int64_t padded = (tokens + kPadding - 1) / kPadding * kPadding;
  HS_ASSERT(tokens > 0 && tokens <= kMaxTokens);
  const auto int8 = values.options().dtype(at::kChar);
  IntegerColumns result{at::zeros({columns, 3 * padded}, int8), at::zeros({columns, 3 * padded}, int8),
                        values.abs().amax(0).to(at::kDouble).div_(kLargest)};
  for (std::int64_t first = 0; first < columns; first += kColumns) {
    const std::int64_t count = std::min(kColumns, columns - first);
    const at::Tensor unit = result.unit.narrow(0, first, count).unsqueeze(1);
    const at::Tensor scaled = values.narrow(1, first, count).t().to(at::kDouble).div_(unit);
    at::Tensor numbers = at::where(unit > 0, scaled, at::zeros_like(scaled)).round_().to(at::kInt);
    for (const std::int64_t i : {2, 1, 0}) {
      const at::Tensor digit = i > 0 ? split_digit(numbers) : numbers;
      result.digits.narrow(0, first, count).narrow(1, i * padded, tokens).copy_(digit);
      result.reversed.narrow(0, first, count).narrow(1, (2 - i) * padded, tokens).copy_(digit);
    }
  }
  return result;
}

void add_integer_product(at::Tensor& sums, const IntegerColumns& columns, const IntegerColumns& rows) {
  const std::int64_t tokens = columns.digits.size(1) / 3;
  // Multiplies `count` digits of the columns, from digit `first` on, by as many of the rows, from `from` on.
  // Those of the rows are in reverse order.
  const auto product = [&](std::int64_t first, std::int64_t count, std::int64_t from) {
    return digit_sums(columns.digits.narrow(1, first * tokens, count * tokens),
                      rows.reversed.narrow(1, from * tokens, count * tokens));
  };
  at::Tensor total = product(0, 1, 2).to(at::kDouble).mul_(256);  // a a'
  total.add_(product(0, 2, 1)).mul_(256);                         // a b' + b a'
  total.add_(product(0, 3, 0)).mul_(256);                         // a c' + b b' + c a'
  total.add_(product(1, 2, 0));                                   // b c' + c b'
  total.mul_(columns.unit.unsqueeze(1)).mul_(256);
  sums.addcmul_(total, rows.unit.unsqueeze(0));
}

}  // namespace headspan
