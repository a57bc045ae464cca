#include "stats/gram/panel_values.h"

#include <cstring>

#include "base/error.h"
#include "base/process/cpu_dispatch.h"

namespace headspan {
namespace {

HS_INLINED inline float to_bfloat16(float x) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &x, sizeof bits);
  bits = (bits + 0x7fffU + ((bits >> 16) & 1U)) & 0xffff0000U;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}

/// Rounds a shifted value as `precision` multiplies it.
template <Precision precision>
HS_INLINED inline auto rounded(double value) {
  if constexpr (precision == Precision::float64) {
    return value;
  } else {
    const auto x = static_cast<float>(value);
    if constexpr (precision == Precision::float32) return x;
    const float high = to_bfloat16(x);
    return precision == Precision::bfloat16 ? high : high + to_bfloat16(x - high);
  }
}

template <Precision precision, class T, class P>
HS_INLINED inline void shift_loop(const T* __restrict in, const double* __restrict origin, std::int64_t count,
                                  P* __restrict out, double* __restrict sums) {
  if (sums == nullptr) {
    for (std::int64_t j = 0; j < count; ++j)
      out[j] = static_cast<P>(rounded<precision>(static_cast<double>(in[j]) - origin[j]));
    return;
  }
  for (std::int64_t j = 0; j < count; ++j) {
    out[j] = static_cast<P>(rounded<precision>(static_cast<double>(in[j]) - origin[j]));
    sums[j] += static_cast<double>(out[j]);
  }
}

template <class T, class P>
HS_INLINED inline void shift(const T* in, const double* origin, std::int64_t count, Precision precision,
                             P* out, double* sums) {
  HS_ASSERT(multiplies_doubles(precision) == (sizeof(P) == sizeof(double)));
  switch (precision) {
    case Precision::float64:
      return shift_loop<Precision::float64>(in, origin, count, out, sums);
    case Precision::float32:
      return shift_loop<Precision::float32>(in, origin, count, out, sums);
    case Precision::split:
      return shift_loop<Precision::split>(in, origin, count, out, sums);
    case Precision::bfloat16:
      return shift_loop<Precision::bfloat16>(in, origin, count, out, sums);
  }
}

}  // namespace

template <class T, class P>
void shift_values(const T* in, const double* origin, std::int64_t count, Precision precision, P* out,
                  double* sums) {
  on_this_processor([=]() HS_INLINED { shift(in, origin, count, precision, out, sums); });
}

template <class T>
void add_values(const T* values, std::int64_t count, double* sums) {
  on_this_processor([=]() HS_INLINED {
    for (std::int64_t j = 0; j < count; ++j) sums[j] += static_cast<double>(values[j]);
  });
}

template void shift_values(const double*, const double*, std::int64_t, Precision, double*, double*);
template void shift_values(const double*, const double*, std::int64_t, Precision, float*, double*);
template void shift_values(const float*, const double*, std::int64_t, Precision, double*, double*);
template void shift_values(const float*, const double*, std::int64_t, Precision, float*, double*);
template void add_values(const double*, std::int64_t, double*);
template void add_values(const float*, std::int64_t, double*);

}  // namespace headspan
