// The block-cyclic distribution of one axis, as ScaLAPACK defines it (NUMROC, INDXG2L, INDXL2G, INDXG2P). A
// plain value without MPI, so that the elements of any part can be computed, and tested, in one process.
//
//   global element --/block--> global block --%parts--> part
//                                           --/parts--> local block --*block--> local element
//
// Worked example, size 7, block 2, parts 2, first 0:
//   global element  0 1 | 2 3 | 4 5 | 6
//   part            0 0 | 1 1 | 0 0 | 1
//   local element   0 1 | 0 1 | 2 3 | 2
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/error.h"

namespace headspan {

struct BlockCyclic {
  std::int64_t size = 0;   ///< elements of the axis
  std::int64_t block = 1;  ///< elements of a block; the last one may be shorter
  int parts = 1;           ///< rows or columns of processes along the axis
  int first = 0;           ///< the part that owns block 0

  std::int64_t blocks() const { return (size + block - 1) / block; }
  /// Returns the part that owns `global_block`.
  int owner_of_block(std::int64_t global_block) const {
    return static_cast<int>((global_block + first) % parts);
  }
  int owner(std::int64_t global) const { return owner_of_block(global / block); }
  /// Returns the distance of `part` from the part that owns block 0.
  int offset(int part) const { return (part - first + parts) % parts; }
  std::int64_t local_blocks(int part) const { return (blocks() - offset(part) + parts - 1) / parts; }
  std::int64_t global_block(int part, std::int64_t local_block) const {
    return local_block * parts + offset(part);
  }
  std::int64_t block_size(std::int64_t global_block) const {
    return std::min(block, size - global_block * block);
  }
  /// Returns the number of elements that `part` owns.
  std::int64_t local_size(int part) const {
    const std::int64_t n = local_blocks(part);
    return n == 0 ? 0 : (n - 1) * block + block_size(global_block(part, n - 1));
  }
  /// Returns the local index of a global element on the part that owns it.
  std::int64_t local(std::int64_t global) const { return global / block / parts * block + global % block; }
  /// Returns the global index of a local element of `part`.
  std::int64_t global(int part, std::int64_t local) const {
    return global_block(part, local / block) * block + local % block;
  }
  /// Returns the values, one for each element of the axis, that belong to the elements of `part`.
  std::vector<double> local_values(const std::vector<double>& values, int part) const {
    std::vector<double> found(static_cast<std::size_t>(local_size(part)));
    for (std::size_t i = 0; i < found.size(); ++i)
      found[i] = values[static_cast<std::size_t>(global(part, static_cast<std::int64_t>(i)))];
    return found;
  }
  /// Returns how many elements of `part` come before the global element, which any part may own.
  std::int64_t local_before(int part, std::int64_t global) const {
    const std::int64_t b = global / block;
    const std::int64_t l = std::min(first_local_block_from(part, b), local_blocks(part));
    const bool partial = l < local_blocks(part) && global_block(part, l) == b;
    return std::min(l * block + (partial ? global % block : 0), local_size(part));
  }
  /// Returns the first local block of `part` that is `global_block` or comes after it.
  std::int64_t first_local_block_from(int part, std::int64_t global_block) const {
    return std::max<std::int64_t>(0, (global_block - offset(part) + parts - 1) / parts);
  }
};

}  // namespace headspan
