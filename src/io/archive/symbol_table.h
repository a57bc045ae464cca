// The symbols that an entropy coder (io/archive/rans.h) may meet at one place, each with its share of 4096
// slots: a symbol with f slots takes log2(4096 / f) bits. A table is static: it comes with the codec and does
// not adapt.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace headspan {

constexpr int kSlotBits = 12;
constexpr std::uint32_t kSlots = 1U << kSlotBits;
constexpr std::uint32_t kRansLow = 1U << 15;  ///< the coder's states lie in kRansLow .. 2^16 kRansLow

/// Returns the slots of symbols with these probabilities, which need not sum to 1: at least one each, kSlots
/// in all, by largest remainders. At least one and at most 256 symbols; finite probabilities >= 0, not all 0.
/// The same on every machine for equal probabilities.
std::vector<std::uint16_t> slots_of(const std::vector<double>& probabilities);

class SymbolTable {
 public:
  /// What encoding a symbol needs: x becomes x + bias + (x reciprocal >> 32 >> shift) * complement, which is
  /// (x / slots) * kSlots + x % slots + first without a division, for x < limit.
  struct Step {
    std::uint32_t limit, reciprocal, bias;
    std::uint16_t complement, shift;
  };

  /// `slots`: as slots_of returns them. Throws InputError if they cannot be a table.
  explicit SymbolTable(const std::vector<std::uint16_t>& slots);

  int symbols() const { return static_cast<int>(steps_.size()); }
  const Step& step(unsigned symbol) const { return steps_[symbol]; }

  unsigned symbol_at(std::uint32_t slot) const { return symbols_[slot]; }  ///< slot < kSlots
  std::uint32_t slots(unsigned symbol) const { return ranges_[symbol] & 0xffff; }
  std::uint32_t first(unsigned symbol) const { return ranges_[symbol] >> 16; }  ///< slot of the symbol

 private:
  std::vector<Step> steps_;
  std::array<std::uint32_t, 256> ranges_{};     // by symbol: its slots, and above them the first one
  std::array<std::uint8_t, kSlots> symbols_{};  // by slot
};

}  // namespace headspan
