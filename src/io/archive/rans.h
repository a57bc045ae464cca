// Entropy coding by range asymmetric numeral systems (rANS; J. Duda, arXiv 1311.2540): symbols become bytes,
// in hardly more bits than their tables say. Eight states take turns, so that a processor works on several
// symbols at once: the i-th symbol or number of a call belongs to state i % 8. A writer takes everything in
// the opposite order of the reader, last call first. Not the tables (io/archive/symbol_table.h), nor a
// container: there is no length and no checksum.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "io/archive/symbol_table.h"

namespace headspan {

constexpr int kRansLanes = 8;
constexpr std::int64_t kMostAtOnce = 128;  ///< symbols of a call

/// Symbols of which each has one of several tables.
struct TableChoice {
  const SymbolTable* const* tables;
  const std::uint8_t* which;  ///< [count], the table of each symbol
  std::int64_t count;         ///< at most kMostAtOnce
};

class RansWriter {
 public:
  RansWriter() { states_.fill(kRansLow); }

  /// Adds symbols: [choice.count], each one of its table.
  void put(const TableChoice& choice, const std::uint8_t* symbols);

  /// Adds a number of 0 to 12 bits as it is, to the state with this number.
  void put_bits(std::uint32_t value, int bits, int lane);

  /// Returns all bytes: the states, then 16-bit words in the reader's order, little-endian.
  std::vector<std::uint8_t> finish() const;

 private:
  std::array<std::uint32_t, kRansLanes> states_;
  std::vector<std::uint16_t> words_;  // last one first
};

class RansReader {
 public:
  /// Takes what finish() returned. Throws InputError if it is too short to be that.
  RansReader(const std::uint8_t* bytes, std::int64_t size);

  /// Sets symbols: [choice.count]. Throws InputError if the bytes end too early.
  void get(const TableChoice& choice, std::uint8_t* symbols);

  /// Returns a number of 0 to 12 bits. Throws the same.
  std::uint32_t get_bits(int bits, int lane);

  /// Throws InputError unless exactly everything has been read. That notices some changed bytes, not all:
  /// keep a checksum.
  void check_end() const;

 private:
  std::array<std::uint32_t, kRansLanes> states_;
  std::vector<std::uint16_t> words_;  // and kMostAtOnce zeros
  std::size_t next_ = 0;
};

}  // namespace headspan
