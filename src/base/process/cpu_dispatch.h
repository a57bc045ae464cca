// Compiles a loop or a kernel for several instruction sets and chooses the best at run time; the rest of the
// program is built for the oldest processor. If the compiler cannot do that, it is compiled for that one
// only.
//
//   on_this_processor           loops that the compiler vectorises
//   for_this_processor          kernels written with vectors, whose block sizes depend on the number of lanes
//   next_part, with_constant    blocks of a size that is known at compile time
#pragma once

#include <cstdint>
#include <type_traits>

#if defined(__x86_64__) && (defined(__clang__) || __GNUC__ >= 12)
#define HS_SEVERAL_PROCESSORS 1
#else
#define HS_SEVERAL_PROCESSORS 0
#endif
/// 1 if an inlined function may use an instruction that only its caller is compiled for. Clang refuses that.
#if HS_SEVERAL_PROCESSORS && !defined(__clang__)
#define HS_NAMED_INSTRUCTIONS 1
#else
#define HS_NAMED_INSTRUCTIONS 0
#endif
/// Compiles a function for `processor`, with vectors of full length; Clang by itself would use half of it.
#ifdef __clang__
#define HS_COMPILED_FOR(processor) __attribute__((target(processor), min_vector_width(512)))
#else
#define HS_COMPILED_FOR(processor) __attribute__((target(processor)))
#endif
/// Marks every function that a kernel or loop calls; without it the function is compiled for the oldest
/// processor.
#define HS_INLINED __attribute__((always_inline))

namespace headspan {

/// Returns the size of the next block: `at_a_time`, or half of what is left if that is less than two blocks.
HS_INLINED inline std::int64_t next_part(std::int64_t left, std::int64_t at_a_time) {
  if (left >= 2 * at_a_time || left <= at_a_time) return left < at_a_time ? left : at_a_time;
  return (left + 1) / 2;
}

/// Calls use(n) with n as a compile-time constant; 1 <= n <= kMax.
template <int kMax, class Use>
HS_INLINED inline void with_constant(std::int64_t n, const Use& use) {
  if constexpr (kMax > 1)
    if (n < kMax) return with_constant<kMax - 1>(n, use);
  use(std::integral_constant<int, kMax>());
}

#if HS_SEVERAL_PROCESSORS
template <class Kernel, class... Arguments>
HS_COMPILED_FOR("arch=x86-64-v4")
auto run_with_16_lanes(Arguments... arguments) {
  return Kernel::template run<16>(arguments...);
}

template <class Kernel, class... Arguments>
HS_COMPILED_FOR("arch=x86-64-v3")
auto run_with_8_lanes(Arguments... arguments) {
  return Kernel::template run<8>(arguments...);
}
#endif

template <class Kernel, class... Arguments>
auto run_with_4_lanes(Arguments... arguments) {
  return Kernel::template run<4>(arguments...);
}

/// Returns the vector length of this processor in lanes of 4 bytes: 16 (AVX-512), 8 (AVX2 with FMA) or 4.
inline int best_lanes() {
#if HS_SEVERAL_PROCESSORS && defined(__clang__)  // Clang 14 does not know the levels by name here
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                    __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
  if (avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl"))
    return 16;
  if (avx2) return 8;
#elif HS_SEVERAL_PROCESSORS
  if (__builtin_cpu_supports("x86-64-v4") != 0) return 16;
  if (__builtin_cpu_supports("x86-64-v3") != 0) return 8;
#endif
  return 4;
}

/// Returns whether run_with_vnni can be called: whether this processor has AVX-512's fused products of
/// integers.
inline bool has_vnni() {
#if HS_SEVERAL_PROCESSORS
  static const bool found = best_lanes() == 16 && __builtin_cpu_supports("avx512vnni") != 0;
  return found;
#else
  return false;
#endif
}

/// Returns whether run_with_vbmi can be called: whether it also moves bits to bytes in one instruction.
inline bool has_vbmi() {
#if HS_NAMED_INSTRUCTIONS
  static const bool found = has_vnni() && __builtin_cpu_supports("avx512vbmi") != 0;
  return found;
#else
  return false;
#endif
}

#if HS_SEVERAL_PROCESSORS
/// Calls Kernel::run<16, true>(arguments...), which is HS_INLINED and may use these products.
template <class Kernel, class... Arguments>
HS_COMPILED_FOR("arch=x86-64-v4,avx512vnni")
auto run_with_vnni(Arguments... arguments) {
  return Kernel::template run<16, true>(arguments...);
}
#endif
#if HS_NAMED_INSTRUCTIONS
/// Calls Kernel::run_on_bytes(arguments...), which is HS_INLINED and may use both.
template <class Kernel, class... Arguments>
HS_COMPILED_FOR("arch=x86-64-v4,avx512vnni,avx512vbmi")
auto run_with_vbmi(Arguments... arguments) {
  return Kernel::run_on_bytes(arguments...);
}
#endif

/// Calls Kernel::run<Lanes>(arguments...), which is HS_INLINED, with vectors of `lanes` <= best_lanes().
template <class Kernel, class... Arguments>
auto run_with(int lanes, Arguments... arguments) {
#if HS_SEVERAL_PROCESSORS
  if (lanes == 16) return run_with_16_lanes<Kernel>(arguments...);
  if (lanes == 8) return run_with_8_lanes<Kernel>(arguments...);
#endif
  static_cast<void>(lanes);
  return run_with_4_lanes<Kernel>(arguments...);
}

/// Calls Kernel::run<Lanes>(arguments...) with the longest vectors of this processor.
template <class Kernel, class... Arguments>
auto for_this_processor(Arguments... arguments) {
  static const int lanes = best_lanes();
  return run_with<Kernel>(lanes, arguments...);
}

struct Loops {
  template <int Lanes, class Body>
  HS_INLINED static auto run(const Body* body) {
    const Body copy = *body;  // stays in registers, whatever the loops write
    return copy();
  }
};

/// Calls body(), whose loops are compiled for this processor. It is HS_INLINED and holds copies of what it
/// reads.
template <class Body>
auto on_this_processor(const Body& body) {
  return for_this_processor<Loops>(&body);
}

}  // namespace headspan
