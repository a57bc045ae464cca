// The stored block of one stream and layer, of all sequences of a batch, on a device: records of
// model/cache/record_format.h taken apart, one tensor for the numbers or codes of each band and one for its
// scales, [sequences, room for tokens, ..], so that a step reads all sequences together. Room grows by
// kTokens for each sequence as the longest one needs it. Not what the columns mean.
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

  /// For how many tokens of each sequence there is room where the longest has `tokens`. Slot t of sequence s
  /// is s * room + t.
  static std::int64_t room_for(std::int64_t tokens) { return (tokens + kTokens - 1) / kTokens * kTokens; }

  /// Makes room for `tokens` of each sequence; never less than there is. What is not stored yet reads as
  /// zero.
  void reserve(std::int64_t tokens);

  /// z: [rows, columns], float32 or float64; slots: [rows], int64.
  void store(const at::Tensor& z, const at::Tensor& slots);

  /// Of sequences first_sequence .. and tokens first .. of a map's band, what the map takes, in `type`: plain
  /// numbers where they lie if that is their type.
  StoredNumbers read(const BandMap& map, std::int64_t first_sequence, std::int64_t sequences,
                     std::int64_t first, std::int64_t tokens, at::ScalarType type) const;

  /// The same of some slots, multiplied out: [slots, numbers], which the map takes to heads.
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
