// Attention of queries of several sequences over stored blocks on a device, in ATen: what
// model/cache/page_attention.h does on the host, for all sequences in the same operations. Queries absorb the
// maps of their heads and multiply stored numbers as they are, in one product for all heads that read a band.
// Stored values are summed with their weights first, and only the sum is reconstructed. Codes are unpacked to
// fields (model/kernels/packed_codes.h), a chunk of the tokens at a time, and their scales are applied to
// scores and weights. bfloat16 numbers are multiplied as they are and summed in float32. A full cache uses
// LibTorch's own attention.
#pragma once

#include <vector>

#include "model/device_cache/device_block.h"

namespace headspan {

/// One stream of a layer.
struct DeviceView {
  const std::vector<DeviceLayer>* layers;
  const std::vector<DeviceBlock>* blocks;
  std::int64_t number;       ///< of the layer
  at::ScalarType read_type;  ///< type of stored numbers in products
  at::Tensor exact;          ///< [sequences, first tokens, kv_heads, d]; undefined: none
  at::Tensor recent;         ///< [sequences, recent tokens, kv_heads, d]; undefined: none
  at::Tensor starts;         ///< [sequences, tokens that begin a document, kv_heads, d]; undefined: none

  const DeviceLayer& layer() const { return (*layers)[static_cast<std::size_t>(number)]; }
  const DeviceBlock& block(std::int64_t of) const { return (*blocks)[static_cast<std::size_t>(of)]; }
};

/// The same number of queries from each of some sequences, which are neighbours in the batch. Positions have
/// a first dimension of 1 where they are the same in all sequences.
struct QueryBlock {
  at::Tensor q;                 ///< [sequences, queries, heads, d], float32 or float64
  at::Tensor positions;         ///< [sequences, queries]
  at::Tensor recent_positions;  ///< [sequences, slots] of recent tokens; undefined: none
  at::Tensor start_positions;  ///< [sequences, slots] of tokens that begin a document, -1 for none; undefined
  std::int64_t first_sequence = 0;
  std::int64_t tokens = 0;  ///< how many the last query sees
  bool sees_all = false;    ///< every query sees all of them

  std::int64_t sequences() const { return q.size(0); }
};

/// Returns [sequences, queries, heads, d]. A query sees the tokens up to its own position; those that `exact`
/// names are read as they are.
at::Tensor attend_blocks(const QueryBlock& queries, const DeviceView& keys, const DeviceView& values,
                         const ExactTokens& exact);

/// Returns stored tokens as the layer reconstructs them, by their slots: [slots, kv_heads, d] of `type`.
at::Tensor decode_slots(const DeviceView& view, const at::Tensor& slots, at::ScalarType type);

}  // namespace headspan
