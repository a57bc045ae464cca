// How the rows of a product are cut into blocks that threads take in turn.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/range.h"
#include "dist/kernels/register_tile.h"

namespace headspan {

constexpr std::int64_t kMostBlockRows = 240;  ///< of a block; a multiple of kTileRowStep

/// Cuts the rows top .. rows - 1 into blocks of at most kMostBlockRows, the last rows first. Blocks begin at
/// most half of a thread's share and become smaller, so that threads that take them in turn end together.
inline std::vector<Range> row_blocks(std::int64_t top, std::int64_t rows, std::int64_t threads) {
  constexpr std::int64_t kSharesPerThread = 2;
  std::vector<Range> blocks;
  for (std::int64_t end = rows; end > top; end = blocks.back().first) {
    const std::int64_t left = end - top, fair = threads == 1 ? left : left / (kSharesPerThread * threads);
    const std::int64_t count =
        std::min(left, std::clamp(fair / kTileRowStep * kTileRowStep, kTileRowStep, kMostBlockRows));
    blocks.push_back({end - count, count});
  }
  return blocks;
}

}  // namespace headspan
