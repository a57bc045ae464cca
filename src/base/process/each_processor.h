// Compiles a loop for several instruction sets, of which the best is chosen when the program starts: it is
// built for the oldest processor itself. Where the compiler cannot, once, for that one.
//
//   HS_FOR_EACH_PROCESSOR   before a function whose loops the compiler turns into vectors by itself
//
//   for_this_processor      for kernels written in vectors, whose blocks depend on how many numbers one holds
//
//   next_part, with_constant    blocks of a size that the compiler knows
#pragma once

#include <cstdint>
#include <type_traits>

#if defined(__x86_64__) && !defined(__clang__) && __GNUC__ >= 12
#define HS_SEVERAL_PROCESSORS 1
#else
#define HS_SEVERAL_PROCESSORS 0
#endif
#if HS_SEVERAL_PROCESSORS && \
    !defined(__SANITIZE_ADDRESS__)  // what it needs is not there when they are chosen
#define HS_FOR_EACH_PROCESSOR __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define HS_FOR_EACH_PROCESSOR
#endif
/// For what such a function calls: else it is compiled once, for the oldest processor.
#define HS_INLINED __attribute__((always_inline))

namespace headspan {

/// As many as are taken at a time, or nearly equal parts of what is left.
HS_INLINED inline std::int64_t next_part(std::int64_t left, std::int64_t at_a_time) {
  if (left >= 2 * at_a_time || left <= at_a_time) return left < at_a_time ? left : at_a_time;
  return (left + 1) / 2;
}

/// Calls use(n) with a constant; 1 <= n <= Most.
template <int Most, class Use>
HS_INLINED inline void with_constant(std::int64_t n, const Use& use) {
  if constexpr (Most > 1)
    if (n < Most) return with_constant<Most - 1>(n, use);
  use(std::integral_constant<int, Most>());
}

#if HS_SEVERAL_PROCESSORS
template <class Kernel, class... Arguments>
__attribute__((target("arch=x86-64-v4"))) void run_with_16_lanes(Arguments... arguments) {
  Kernel::template run<16>(arguments...);
}

template <class Kernel, class... Arguments>
__attribute__((target("arch=x86-64-v3"))) void run_with_8_lanes(Arguments... arguments) {
  Kernel::template run<8>(arguments...);
}
#endif

template <class Kernel, class... Arguments>
void run_with_4_lanes(Arguments... arguments) {
  Kernel::template run<4>(arguments...);
}

/// The longest vectors of this processor, in lanes of 4 bytes: 16 (AVX-512), 8 (AVX2 with FMA) or 4.
inline int best_lanes() {
#if HS_SEVERAL_PROCESSORS
  if (__builtin_cpu_supports("x86-64-v4") != 0) return 16;
  if (__builtin_cpu_supports("x86-64-v3") != 0) return 8;
#endif
  return 4;
}

/// Kernel::run<Lanes>(arguments...), which is HS_INLINED, with vectors of `lanes` <= best_lanes().
template <class Kernel, class... Arguments>
void run_with(int lanes, Arguments... arguments) {
#if HS_SEVERAL_PROCESSORS
  if (lanes == 16) return run_with_16_lanes<Kernel>(arguments...);
  if (lanes == 8) return run_with_8_lanes<Kernel>(arguments...);
#endif
  static_cast<void>(lanes);
  run_with_4_lanes<Kernel>(arguments...);
}

/// The same with the longest.
template <class Kernel, class... Arguments>
void for_this_processor(Arguments... arguments) {
  static const int lanes = best_lanes();
  run_with<Kernel>(lanes, arguments...);
}

}  // namespace headspan
