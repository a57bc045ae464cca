// Permutes the elements of vectors in one instruction, or the few that the processor has: in GCC's words or
// in Clang's.
#pragma once

#include <utility>

#include "base/process/cpu_dispatch.h"

namespace headspan {

/// Element i of `to`: element Place[i] of a followed by b.
template <class V, int... Place>
HS_INLINED inline void shuffle(const V& a, const V& b, std::integer_sequence<int, Place...> /*places*/,
                               V& to) {
#ifdef __clang__
  to = __builtin_shufflevector(a, b, Place...);
#else
  using Places = decltype(a == b);  // integers of the same size
  constexpr Places kPlaces = {Place...};
  to = __builtin_shuffle(a, b, kPlaces);
#endif
}

}  // namespace headspan
