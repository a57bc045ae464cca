// Contiguous ranges of indices, and how a range is divided among ranks or threads.
#pragma once

#include <algorithm>
#include <cstdint>

namespace headspan {

/// The indices first .. first + count - 1.
struct Range {
  std::int64_t first = 0;
  std::int64_t count = 0;

  bool contains(std::int64_t index) const { return index >= first && index < first + count; }
};

/// Divides 0 .. total - 1 into `parts` consecutive ranges whose sizes differ by at most one, the larger ones
/// first, and returns the one of number `part`.
inline Range range_of(std::int64_t total, std::int64_t parts, std::int64_t part) {
  return {total / parts * part + std::min(part, total % parts),
          total / parts + (part < total % parts ? 1 : 0)};
}

/// Returns the number of the part whose range holds `index`.
inline int range_owner(std::int64_t total, std::int64_t parts, std::int64_t index) {
  const std::int64_t small = total / parts, large_parts = total % parts;
  if (index < large_parts * (small + 1)) return static_cast<int>(index / (small + 1));
  return static_cast<int>(large_parts + (index - large_parts * (small + 1)) / small);
}

}  // namespace headspan
