// A cache plan in the form that a device uses: what encodes new tokens, and the maps of all heads that read a
// stored band, joined so that one product reads its columns once for all of them. Coded bands are read as
// fields (model/kernels/packed_codes.h), and their maps are maps of fields. Made once for all caches of a
// plan.
#pragma once

#include <optional>
#include <vector>

#include "model/cache/cache_plan.h"
#include "model/kernels/packed_codes.h"

namespace headspan {

/// Columns first .. first + columns of a stored block.
struct DeviceBand {
  std::int64_t first = 0;
  std::int64_t columns = 0;
  std::optional<PackedCodes> codes;  ///< nothing: plain

  bool has_gain() const { return codes && codes->band().coding == Coding::gain; }
  /// Returns how many numbers are read per token: columns, or fields.
  std::int64_t numbers() const { return codes ? codes->fields() : columns; }
};

/// The linear map from numbers first .. first + count of a band of some layer to heads head .. head +
/// heads().
struct BandMap {
  std::int64_t layer = 0;
  std::size_t band = 0;
  std::int64_t first = 0;
  std::int64_t count = 0;
  std::int64_t head = 0;
  at::Tensor matrix;  ///< [heads, count, d]; zero where a head does not read a column

  std::int64_t heads() const { return matrix.size(0); }
};

struct DeviceLayer {
  std::int64_t kv_heads = 0;
  StoredBlock block;  ///< how new tokens are encoded
  std::vector<DeviceBand> bands;
  at::Tensor weights;        ///< [columns], float64, of a block whose bands share a gain; else undefined
  bool own_columns = false;  ///< one plain band, in which each head has its own columns; `maps` is empty
  std::vector<BandMap> maps;
  at::Tensor bias;          ///< [kv_heads, 1, d]; undefined: none
  AttentionRule attention;  ///< of the model in this layer
};

struct DevicePlan {
  std::vector<DeviceLayer> keys, values;  ///< [layers]
  at::Device device = at::kCPU;
  std::int64_t head_size = 0;
  ExactTokens exact;
  std::vector<std::int64_t> document_ends;
};

/// Moves a cache plan in which nothing is sharded to a device. `compute`: the type in which attention
/// computes, float32 or float64.
DevicePlan make_device_plan(const CachePlan& plan, at::ScalarType compute, at::Device device);

}  // namespace headspan
