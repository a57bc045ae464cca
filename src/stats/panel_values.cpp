#include "stats/panel_values.h"

#include <cstring>

#if defined(__x86_64__) && !defined(__clang__) && __GNUC__ >= 12 && !defined(__SANITIZE_ADDRESS__)
#define HS_FOR_EACH_PROCESSOR __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define HS_FOR_EACH_PROCESSOR
#endif
#define HS_INLINED __attribute__((always_inline))  // else a loop is compiled once, for the oldest processor

namespace headspan {
namespace {

template <class T, class P>
HS_INLINED inline void subtract_loop(const T* in, const double* origin, std::int64_t count, P* out) {
  for (std::int64_t j = 0; j < count; ++j) out[j] = static_cast<P>(static_cast<double>(in[j]) - origin[j]);
}

template <class P>
HS_INLINED inline void add_loop(const P* values, std::int64_t count, double* sums) {
  for (std::int64_t j = 0; j < count; ++j) sums[j] += static_cast<double>(values[j]);
}

HS_INLINED inline float to_bfloat16(float x) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &x, sizeof bits);
  bits = (bits + 0x7fffU + ((bits >> 16) & 1U)) & 0xffff0000U;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}

HS_FOR_EACH_PROCESSOR void round_to_bfloat16(float* values, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) values[i] = to_bfloat16(values[i]);
}

HS_FOR_EACH_PROCESSOR void round_to_split(float* values, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float high = to_bfloat16(values[i]);
    values[i] = high + to_bfloat16(values[i] - high);
  }
}

}  // namespace

HS_FOR_EACH_PROCESSOR void subtract(const float* in, const double* origin, std::int64_t count, double* out) {
  subtract_loop(in, origin, count, out);
}
HS_FOR_EACH_PROCESSOR void subtract(const double* in, const double* origin, std::int64_t count, double* out) {
  subtract_loop(in, origin, count, out);
}
HS_FOR_EACH_PROCESSOR void subtract(const float* in, const double* origin, std::int64_t count, float* out) {
  subtract_loop(in, origin, count, out);
}
HS_FOR_EACH_PROCESSOR void subtract(const double* in, const double* origin, std::int64_t count, float* out) {
  subtract_loop(in, origin, count, out);
}

void round_values(float* values, std::int64_t count, Precision precision) {
  if (precision == Precision::bfloat16) round_to_bfloat16(values, count);
  if (precision == Precision::split) round_to_split(values, count);
}

HS_FOR_EACH_PROCESSOR void add_values(const double* values, std::int64_t count, double* sums) {
  add_loop(values, count, sums);
}
HS_FOR_EACH_PROCESSOR void add_values(const float* values, std::int64_t count, double* sums) {
  add_loop(values, count, sums);
}

}  // namespace headspan
