#include "io/archive/rans.h"

#include "base/checked.h"

namespace headspan {
namespace {

constexpr std::int64_t kStateBytes = 4 * kRansLanes;

[[noreturn]] void refuse(const char* what) {
  throw InputError("", "coded numbers", "", what, "the file is damaged; make it again");
}

/// Adds a symbol to a state, after a word has gone where the state would not be below `limit`.
inline void put_one(const SymbolTable::Step& step, std::uint32_t& state, std::uint16_t*& words) {
  std::uint32_t x = state;
  *words = static_cast<std::uint16_t>(x);
  const bool full = x >= step.limit;
  words += full;
  x = full ? x >> 16 : x;
  const auto quotient = static_cast<std::uint32_t>(std::uint64_t{x} * step.reciprocal >> 32) >> step.shift;
  state = x + step.bias + quotient * step.complement;
}

inline void refill(std::uint32_t& state, const std::uint16_t*& words) {
  const bool low = state < kRansLow;
  state = low ? state << 16 | *words : state;
  words += low;
}

inline unsigned get_one(const SymbolTable& table, std::uint32_t& state, const std::uint16_t*& words) {
  const std::uint32_t slot = state & (kSlots - 1);
  const unsigned symbol = table.symbol_at(slot);
  state = table.slots(symbol) * (state >> kSlotBits) + slot - table.first(symbol);
  refill(state, words);
  return symbol;
}

std::int64_t whole_rounds(std::int64_t count) { return count / kRansLanes * kRansLanes; }

}  // namespace

void RansWriter::put(const TableChoice& choice, const std::uint8_t* symbols) {
  HS_ASSERT(choice.count <= kMostAtOnce);
  const std::size_t used = words_.size();
  words_.resize(used + to_size(kMostAtOnce) + 1);
  std::uint16_t* const begin = words_.data();
  std::uint16_t* words = begin + used;
  const auto step = [&](std::int64_t i) -> const SymbolTable::Step& {
    return choice.tables[choice.which[i]]->step(symbols[i]);
  };
  auto states = states_;
  const std::int64_t rounds = whole_rounds(choice.count);
  for (std::int64_t i = choice.count - 1; i >= rounds; --i)
    put_one(step(i), states[to_size(i - rounds)], words);
  for (std::int64_t round = rounds - kRansLanes; round >= 0; round -= kRansLanes)
#pragma GCC unroll 8
    for (int lane = kRansLanes - 1; lane >= 0; --lane)
      put_one(step(round + lane), states[to_size(lane)], words);
  states_ = states;
  words_.resize(static_cast<std::size_t>(words - begin));
}

void RansWriter::put_bits(std::uint32_t value, int bits, int lane) {
  std::uint32_t& x = states_[to_size(lane)];
  if (x >= (kRansLow << 16) >> bits) {
    words_.push_back(static_cast<std::uint16_t>(x));
    x >>= 16;
  }
  x = x << bits | value;
}

std::vector<std::uint8_t> RansWriter::finish() const {
  std::vector<std::uint8_t> bytes;
  bytes.reserve(to_size(kStateBytes) + 2 * words_.size());
  for (const std::uint32_t state : states_)
    for (int byte = 0; byte < 4; ++byte) bytes.push_back(static_cast<std::uint8_t>(state >> (8 * byte)));
  for (auto word = words_.rbegin(); word != words_.rend(); ++word) {
    bytes.push_back(static_cast<std::uint8_t>(*word));
    bytes.push_back(static_cast<std::uint8_t>(*word >> 8));
  }
  return bytes;
}

RansReader::RansReader(const std::uint8_t* bytes, std::int64_t size) {
  if (size < kStateBytes || size % 2 != 0) refuse("are cut off");
  for (std::uint32_t& state : states_) {
    state = 0;
    for (int byte = 0; byte < 4; ++byte) state |= std::uint32_t{*bytes++} << (8 * byte);
    if (state < kRansLow || state >= kRansLow << 16) refuse("begin with what no coder has written");
  }
  const std::int64_t words = (size - kStateBytes) / 2;
  words_.resize(to_size(words + kMostAtOnce));
  for (std::int64_t i = 0; i < words; ++i, bytes += 2)
    words_[to_size(i)] = static_cast<std::uint16_t>(bytes[0] | bytes[1] << 8);
}

void RansReader::get(const TableChoice& choice, std::uint8_t* symbols) {
  HS_ASSERT(choice.count <= kMostAtOnce);
  const std::uint16_t* words = words_.data() + next_;
  auto states = states_;
  const std::int64_t rounds = whole_rounds(choice.count);
  const auto get_into = [&](std::int64_t i, std::uint32_t& state) {
    symbols[i] = static_cast<std::uint8_t>(get_one(*choice.tables[choice.which[i]], state, words));
  };
  for (std::int64_t round = 0; round < rounds; round += kRansLanes)
#pragma GCC unroll 8
    for (int lane = 0; lane < kRansLanes; ++lane) get_into(round + lane, states[to_size(lane)]);
  for (std::int64_t i = rounds; i < choice.count; ++i) get_into(i, states[to_size(i - rounds)]);
  states_ = states;
  next_ = static_cast<std::size_t>(words - words_.data());
  if (next_ + to_size(kMostAtOnce) > words_.size()) refuse("end too early");
}

std::uint32_t RansReader::get_bits(int bits, int lane) {
  std::uint32_t& x = states_[to_size(lane)];
  const std::uint32_t value = x & ((1U << bits) - 1);
  x >>= bits;
  const std::uint16_t* words = words_.data() + next_;
  refill(x, words);
  next_ = static_cast<std::size_t>(words - words_.data());
  if (next_ + to_size(kMostAtOnce) > words_.size()) refuse("end too early");
  return value;
}

void RansReader::check_end() const {
  if (next_ + to_size(kMostAtOnce) != words_.size()) refuse("are more than there should be");
  for (const std::uint32_t state : states_)
    if (state != kRansLow) refuse("do not end as they should");
}

}  // namespace headspan
