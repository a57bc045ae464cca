// Compiles a loop for several instruction sets, of which the best is chosen when the program starts: it is
// built for the oldest processor itself. Where the compiler cannot, once, for that one.
#pragma once

#if defined(__x86_64__) && !defined(__clang__) && __GNUC__ >= 12 && !defined(__SANITIZE_ADDRESS__)
#define HS_FOR_EACH_PROCESSOR __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define HS_FOR_EACH_PROCESSOR
#endif
/// For what such a function calls: else it is compiled once, for the oldest processor.
#define HS_INLINED __attribute__((always_inline))
