// StoredBits: how many bits a compressed cache spends on each number that it stores, as compress.bits says.
#pragma once

#include <optional>
#include <vector>

#include "app/job/value_kind.h"
#include "base/bands.h"

namespace headspan {

/// Either a width or bands. If there is neither, bits are chosen for each layer (auto).
struct StoredBits {
  std::optional<int> width;  ///< of every number: 16 (as the model computes it), 8, 5, 4, 3 or 2
  std::vector<Band> bands;   ///< of every layer, more bits before fewer

  bool is_automatic() const { return !width && bands.empty(); }
  /// Returns whether numbers are rounded to codes of one width.
  bool is_quantised() const { return width && *width != kPlainBits; }
};

/// auto, 16, 8, 5, 4, 3, 2 or COUNTxBITS,...
ValueKind<StoredBits> stored_bits();

}  // namespace headspan
