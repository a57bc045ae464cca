#include "stats/panel_values.h"

#include <cstring>

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define HS_WIDE __attribute__((target_clones("default", "avx2", "avx512f")))
#else
#define HS_WIDE
#endif

namespace headspan {
namespace {

template <class T, class P>
inline void subtract_loop(const T* in, const double* origin, std::int64_t count, P* out) {
  for (std::int64_t j = 0; j < count; ++j) out[j] = static_cast<P>(static_cast<double>(in[j]) - origin[j]);
}

template <class P>
inline void add_loop(const P* values, std::int64_t count, double* sums) {
  for (std::int64_t j = 0; j < count; ++j) sums[j] += static_cast<double>(values[j]);
}

inline float to_bfloat16(float x) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &x, sizeof bits);
  bits = (bits + 0x7fffU + ((bits >> 16) & 1U)) & 0xffff0000U;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}

HS_WIDE void round_to_bfloat16(float* values, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) values[i] = to_bfloat16(values[i]);
}

HS_WIDE void round_to_split(float* values, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float high = to_bfloat16(values[i]);
    values[i] = high + to_bfloat16(values[i] - high);
  }
}

}  // namespace

HS_WIDE void subtract(const float* in, const double* origin, std::int64_t count, double* out) {
  subtract_loop(in, origin, count, out);
}
HS_WIDE void subtract(const double* in, const double* origin, std::int64_t count, double* out) {
  subtract_loop(in, origin, count, out);
}
HS_WIDE void subtract(const float* in, const double* origin, std::int64_t count, float* out) {
  subtract_loop(in, origin, count, out);
}
HS_WIDE void subtract(const double* in, const double* origin, std::int64_t count, float* out) {
  subtract_loop(in, origin, count, out);
}

void round_values(float* values, std::int64_t count, Precision precision) {
  if (precision == Precision::bfloat16) round_to_bfloat16(values, count);
  if (precision == Precision::split) round_to_split(values, count);
}

HS_WIDE void add_values(const double* values, std::int64_t count, double* sums) {
  add_loop(values, count, sums);
}
HS_WIDE void add_values(const float* values, std::int64_t count, double* sums) {
  add_loop(values, count, sums);
}

}  // namespace headspan
