#include "io/archive/symbol_table.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"

namespace headspan {
namespace {

/// Reciprocals after Alverson, as in F. Giesen's rans_byte.h: exact for x < 2^31.
SymbolTable::Step step_of(std::uint32_t slots, std::uint32_t first) {
  SymbolTable::Step step{(kRansLow >> kSlotBits << 16) * slots, 0, first,
                         static_cast<std::uint16_t>(kSlots - slots), 0};
  if (slots == 1) {  // x * (2^32 - 1) >> 32 is x - 1
    step.reciprocal = ~0U;
    step.bias = first + kSlots - 1;
    return step;
  }
  int shift = 0;
  while (slots > 1U << shift) ++shift;
  step.reciprocal = static_cast<std::uint32_t>(((std::uint64_t{1} << (shift + 31)) + slots - 1) / slots);
  step.shift = static_cast<std::uint16_t>(shift - 1);
  return step;
}

}  // namespace

std::vector<std::uint16_t> slots_of(const std::vector<double>& probabilities) {
  const std::size_t n = probabilities.size();
  HS_ASSERT(n >= 1 && n <= 256);
  const double sum = std::accumulate(probabilities.begin(), probabilities.end(), 0.0);
  HS_ASSERT(std::isfinite(sum) && sum > 0);
  std::vector<std::uint16_t> slots(n);
  std::vector<double> wanted(n);
  std::uint32_t given = 0;
  for (std::size_t i = 0; i < n; ++i) {
    wanted[i] = probabilities[i] / sum * kSlots;
    slots[i] = static_cast<std::uint16_t>(std::max(1.0, std::floor(wanted[i])));
    given += slots[i];
  }
  // The symbol that deviates most from what it should have takes or gives a slot, the first one in a tie.
  const auto deviation = [&](std::size_t i) { return wanted[i] - slots[i]; };
  for (; given < kSlots; ++given) {
    std::size_t most = 0;
    for (std::size_t i = 1; i < n; ++i)
      if (deviation(i) > deviation(most)) most = i;
    ++slots[most];
  }
  for (; given > kSlots; --given) {
    std::size_t most = n;
    for (std::size_t i = 0; i < n; ++i)
      if (slots[i] > 1 && (most == n || deviation(i) / slots[i] < deviation(most) / slots[most])) most = i;
    --slots[most];
  }
  return slots;
}

SymbolTable::SymbolTable(const std::vector<std::uint16_t>& slots) {
  const std::uint64_t sum = std::accumulate(slots.begin(), slots.end(), std::uint64_t{0});
  if (slots.empty() || slots.size() > ranges_.size() || sum != kSlots ||
      std::find(slots.begin(), slots.end(), 0) != slots.end())
    throw InputError("", "symbol table",
                     std::to_string(slots.size()) + " symbols with " + std::to_string(sum) + " slots",
                     "is no table of a codec", "1 to 256 symbols that share 4096 slots, at least one each");
  std::uint32_t first = 0;
  for (std::size_t i = 0; i < slots.size(); ++i) {
    steps_.push_back(step_of(slots[i], first));
    ranges_[i] = slots[i] | first << 16;
    std::fill_n(symbols_.begin() + first, slots[i], static_cast<std::uint8_t>(i));
    first += slots[i];
  }
}

}  // namespace headspan
