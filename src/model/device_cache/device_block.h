// The stored block of one stream and layer, for all sequences of a batch, on a device: records of
// model/cache/record_format.h taken apart, one tensor for the numbers or codes of each band and one for its
// scales, [sequences, room for tokens, ..], so that a step reads all sequences together. Room grows by
// kTokens for each sequence as the longest one needs it. What the columns mean is told by
// model/cache/cache_plan.h.
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

  /// `bands` must outlive the block. `plain`: the type of plain columns.
  DeviceBlock(const std::vector<DeviceBand>& bands, std::int64_t sequences, at::ScalarType plain,
              at::Device device);

  std::int64_t allocated_bytes() const;

  /// The room, in tokens of each sequence, where the longest has `tokens`. Slot t of sequence s is s * room +
  /// t.
  static std::int64_t room_for(std::int64_t tokens) { return (tokens + kTokens - 1) / kTokens * kTokens; }

  /// Makes room for `tokens` tokens of each sequence; never shrinks. What is not stored yet reads as zero.
  void reserve(std::int64_t tokens);

  /// z: [rows, columns], float32 or float64; slots: [rows], int64.
  void store(const at::Tensor& z, const at::Tensor& slots);

  /// Returns the numbers that a map reads of its band, for `sequences` sequences and `tokens` tokens, in
  /// `type`: plain numbers in place if that is their type.
  StoredNumbers read(const BandMap& map, std::int64_t first_sequence, std::int64_t sequences,
                     std::int64_t first, std::int64_t tokens, at::ScalarType type) const;

  /// The same for some slots, with scales applied: [slots, numbers], which the map takes to heads.
  at::Tensor read_slots(const BandMap& map, const at::Tensor& slots, at::ScalarType type) const;

  /// The only band of a block in which heads have their own columns: [sequences, room, columns].
  const at::Tensor& own_columns() const { return stored_.front().numbers; }

 private:
  struct Stored {
    at::Tensor numbers;  // [sequences, room, columns] or codes [sequences, room, bytes]
    at::Tensor scales;   // [sequences, room, scales]; undefined: plain
  };

  const std::vector<DeviceBand>* bands_;
  std::vector<Stored> stored_;  // [bands]
  std::int64_t room_ = 0;
};

}  // namespace headspan
