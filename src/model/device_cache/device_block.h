// The stored block of one stream and layer, for all sequences of a batch, on a device. It holds the records
// of model/cache/record_format.h taken apart: for each band one tensor of its numbers or codes and one of its
// scales, [sequences, room for tokens, ..], so that a step reads all sequences together. Room grows by
// kTokens for every sequence when the longest one needs it. model/cache/cache_plan.h says what the columns
// mean.
#pragma once

#include <vector>

#include "model/device_cache/device_plan.h"

namespace headspan {

/// Numbers of a band as they are read.
struct StoredNumbers {
  at::Tensor values;  ///< [sequences, tokens, numbers]
  CodeScales scales;  ///< [sequences, tokens]: z = base + step * code; undefined where the band is plain
};

class DeviceBlock {
 public:
  static constexpr std::int64_t kTokens = 128;

  /// `layer` must outlive the block. `plain`: the type of plain columns.
  DeviceBlock(const DeviceLayer& layer, std::int64_t sequences, at::ScalarType plain, at::Device device);

  std::int64_t allocated_bytes() const;

  /// Returns the room per sequence, in tokens, if the longest has `tokens`. Slot t of sequence s is s * room
  /// + t.
  static std::int64_t room_for(std::int64_t tokens) { return (tokens + kTokens - 1) / kTokens * kTokens; }

  /// Makes room for `tokens` tokens of each sequence; never shrinks. Slots are zero until something is stored
  /// in them.
  void reserve(std::int64_t tokens);

  /// Stores encoded tokens z: [rows, columns], float32 or float64, in slots: [rows], int64.
  void store(const at::Tensor& z, const at::Tensor& slots);

  /// Returns the numbers that a map reads of its band, for `sequences` sequences and `tokens` tokens, in
  /// `type`: plain numbers in place if that is their type.
  StoredNumbers read(const BandMap& map, std::int64_t first_sequence, std::int64_t sequences,
                     std::int64_t first, std::int64_t tokens, at::ScalarType type) const;

  /// Returns the same numbers for some slots, with scales applied: [slots, numbers]. Multiplied by the map
  /// they give heads.
  at::Tensor read_slots(const BandMap& map, const at::Tensor& slots, at::ScalarType type) const;

  /// Returns the numbers of a block in which every head has its own columns, which is a single band:
  /// [sequences, room, columns].
  const at::Tensor& own_columns() const { return stored_.front().numbers; }

 private:
  struct Stored {
    at::Tensor numbers;  // [sequences, room, columns] or codes [sequences, room, bytes]
    at::Tensor scales;   // [sequences, room, scales]; undefined: plain, or the first band's
  };

  at::Tensor choose_gain(const at::Tensor& z) const;
  const at::Tensor& scales_of(std::size_t band) const {
    return (stored_[band].scales.defined() ? stored_[band] : stored_.front()).scales;
  }

  const DeviceLayer* layer_;
  std::vector<Stored> stored_;  // [bands]
  std::int64_t room_ = 0;
};

}  // namespace headspan
