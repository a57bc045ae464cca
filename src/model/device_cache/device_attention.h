// Attention of queries of several sequences over stored blocks on a device, in ATen: what
// model/page_attention does on the host, for all sequences in the same operations. A query is folded with the
// maps of its head and meets stored numbers as they are, one product for all heads that read a band; what
// attention gathers of stored values is lifted once. Codes meet queries as fields, unpacked for a piece of
// the tokens at a time, and their scales go into scores and weights. bfloat16 numbers are multiplied as such
// and summed in float32. Of a full cache this is LibTorch's own attention.
#pragma once

#include <vector>

#include "model/device_cache/device_block.h"

namespace headspan {

/// One stream of a layer.
struct DeviceView {
  const std::vector<DeviceLayer>* layers;
  const std::vector<DeviceBlock>* blocks;
  std::int64_t number;       ///< of the layer
  at::ScalarType read_type;  ///< of stored numbers in products
  at::Tensor exact;          ///< [sequences, exact_first, kv_heads, d]; undefined: none
  at::Tensor recent;         ///< [sequences, slots, kv_heads, d]; undefined: none

  const DeviceLayer& layer() const { return (*layers)[static_cast<std::size_t>(number)]; }
  const DeviceBlock& block(std::int64_t of) const { return (*blocks)[static_cast<std::size_t>(of)]; }
};

/// As many queries of each of some sequences, which are neighbours in the batch. Positions have a first
/// dimension of 1 where they are the same in all sequences.
struct QueryBlock {
  at::Tensor q;                 ///< [sequences, queries, heads, d], float32 or float64
  at::Tensor positions;         ///< [sequences, queries]
  at::Tensor recent_positions;  ///< [sequences, slots] of recent tokens; undefined: none
  std::int64_t first_sequence = 0;
  std::int64_t tokens = 0;  ///< that the last query sees
  bool sees_all = false;    ///< every query sees all of them

  std::int64_t sequences() const { return q.size(0); }
};

/// A query sees the tokens up to its own position, of which the last `exact_recent` are met as they are.
/// Returns [sequences, queries, heads, d].
at::Tensor attend_blocks(const QueryBlock& queries, const DeviceView& keys, const DeviceView& values,
                         std::int64_t exact_recent);

/// The heads that a layer gives in place of stored tokens, by their slots: [slots, kv_heads, d] of `type`.
at::Tensor lift_slots(const DeviceView& view, const at::Tensor& slots, at::ScalarType type);

}  // namespace headspan
