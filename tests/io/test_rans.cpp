// Entropy coding: tables in closed form, reciprocals against divisions, lengths against the entropy.
#include <cmath>
#include <numeric>

#include <gtest/gtest.h>

#include "base/splitmix64.h"
#include "io/archive/rans.h"
#include "support/input_error.h"

namespace headspan {
namespace {

TEST(SymbolTableTest, SharesSlotsByLargestRemainders) {
  EXPECT_EQ(slots_of({1, 1, 2}), (std::vector<std::uint16_t>{1024, 1024, 2048}));
  EXPECT_EQ(slots_of({1, 1, 1}), (std::vector<std::uint16_t>{1366, 1365, 1365}));
  EXPECT_EQ(slots_of({1, 1, 3}), (std::vector<std::uint16_t>{819, 819, 2458}));
  EXPECT_EQ(slots_of({5}), (std::vector<std::uint16_t>{4096}));
  EXPECT_EQ(slots_of({1, 0, 1e-9}), (std::vector<std::uint16_t>{4094, 1, 1}));
  EXPECT_EQ(slots_of(std::vector<double>(256, 0.5)), std::vector<std::uint16_t>(256, 16));
}

TEST(SymbolTableTest, DividesByReciprocals) {
  for (std::uint16_t slots = 1; slots < kSlots; ++slots) {
    const SymbolTable table({static_cast<std::uint16_t>(kSlots - slots), slots});
    const SymbolTable::Step& step = table.step(1U);
    const std::uint32_t first = kSlots - slots;
    SplitMix64 random(slots);
    for (int i = 0; i < 2000; ++i) {
      std::uint32_t x = static_cast<std::uint32_t>(random.next() % step.limit);
      if (i < 500) x = step.limit - 1 - x % 5000 % step.limit;             // largest
      if (i % 2 == 0 && x >= slots) x = x / slots * slots - (i % 4 == 0);  // where the quotient changes
      const auto quotient =
          static_cast<std::uint32_t>(std::uint64_t{x} * step.reciprocal >> 32) >> step.shift;
      ASSERT_EQ(x + step.bias + quotient * step.complement, x / slots * kSlots + x % slots + first)
          << x << " / " << slots;
    }
  }
}

TEST(SymbolTableTest, RefusesWhatIsNoTable) {
  for (const std::vector<std::uint16_t>& slots :
       {std::vector<std::uint16_t>{}, {4095}, {4096, 0}, {2048, 2049}, std::vector<std::uint16_t>(512, 8)})
    EXPECT_NE(input_error_of([&] { const SymbolTable table(slots); }).find("is no table of a codec"),
              std::string::npos);
}

/// Calls of 1 to 128 symbols, drawn with the probabilities of two tables, and after each call five plain
/// bits.
struct Sample {
  std::vector<SymbolTable> tables{SymbolTable({4000, 90, 5, 1}), SymbolTable({512, 512, 1024, 2048})};
  std::vector<std::vector<std::uint8_t>> which, symbols;  // by call
  std::vector<std::uint32_t> plain;
  double bits = 0;  // by the tables

  explicit Sample(std::size_t calls) {
    SplitMix64 random(7);
    for (std::size_t call = 0; call < calls; ++call) {
      which.emplace_back(call < 130 ? call % 128 + 1 : kMostAtOnce);
      for (std::uint8_t& table : which.back()) {
        table = random.next() % 2;
        if (call == symbols.size()) symbols.emplace_back();
        const unsigned symbol = tables[table].symbol_at(static_cast<std::uint32_t>(random.next() % kSlots));
        symbols.back().push_back(static_cast<std::uint8_t>(symbol));
        bits += kSlotBits - std::log2(tables[table].slots(symbol));
      }
      plain.push_back(static_cast<std::uint32_t>(random.next() % 32));
      bits += 5;
    }
  }

  static int lane(std::size_t call) { return static_cast<int>(call % kRansLanes); }

  std::vector<std::uint8_t> written() const {
    const SymbolTable* const pointers[] = {&tables[0], &tables[1]};
    RansWriter writer;
    for (std::size_t call = plain.size(); call-- > 0;) {
      writer.put_bits(plain[call], 5, lane(call));
      writer.put({pointers, which[call].data(), static_cast<std::int64_t>(which[call].size())},
                 symbols[call].data());
    }
    return writer.finish();
  }

  using Values = std::pair<std::vector<std::vector<std::uint8_t>>, std::vector<std::uint32_t>>;

  Values values() const { return {symbols, plain}; }

  Values read(const std::vector<std::uint8_t>& bytes) const {
    const SymbolTable* const pointers[] = {&tables[0], &tables[1]};
    RansReader reader(bytes.data(), static_cast<std::int64_t>(bytes.size()));
    Values read;
    for (std::size_t call = 0; call < plain.size(); ++call) {
      read.first.emplace_back(which[call].size());
      reader.get({pointers, which[call].data(), static_cast<std::int64_t>(which[call].size())},
                 read.first.back().data());
      read.second.push_back(reader.get_bits(5, lane(call)));
    }
    reader.check_end();
    return read;
  }
};

TEST(RansTest, ReadsWhatWasWrittenInTheBitsOfTheTables) {
  for (const std::size_t calls : {0U, 1U, 7U, 8U, 9U, 130U, 1000U}) {
    const Sample sample(calls);
    const auto bytes = sample.written();
    EXPECT_EQ(sample.read(bytes), sample.values());
    // Each lane begins with 32 bits, of which 15 hold nothing; coding itself costs next to nothing.
    const double states = 8.0 * 4 * kRansLanes;
    EXPECT_LE(8.0 * static_cast<double>(bytes.size()), sample.bits * 1.0005 + states + 16);
    EXPECT_GE(8.0 * static_cast<double>(bytes.size()), sample.bits * 0.9995);
  }
}

TEST(RansTest, RefusesBytesThatAreCutOrMore) {
  const Sample sample(50);
  const auto bytes = sample.written();
  for (std::size_t size = 0; size < bytes.size(); ++size)
    EXPECT_NE(input_error_of([&] {
                sample.read({bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size)});
              }),
              "nothing was refused")
        << size;
  auto more = bytes;
  more.insert(more.end(), {1, 2});
  EXPECT_NE(input_error_of([&] { sample.read(more); }).find("are more than there should be"),
            std::string::npos);
}

// A reader takes any bytes, but what it makes of two different ones cannot be equal.
TEST(RansTest, ReadsChangedBytesAsSomethingElse) {
  const Sample sample(20);
  const auto bytes = sample.written();
  for (std::size_t i = 0; i < bytes.size(); ++i)
    for (int bit = 0; bit < 8; ++bit) {
      auto changed = bytes;
      changed[i] ^= static_cast<std::uint8_t>(1U << bit);
      Sample::Values values;
      const bool refused = input_error_of([&] { values = sample.read(changed); }) != "nothing was refused";
      EXPECT_TRUE(refused || values != sample.values()) << i;
    }
}

}  // namespace
}  // namespace headspan
