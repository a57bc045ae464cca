#include "io/archive/level_coder.h"

#include <algorithm>
#include <cmath>

#include "base/checked.h"

namespace headspan {
namespace {

constexpr int kMostShift = 12;
constexpr std::int64_t kStrip = 16;  // columns whose tokens are laid side by side at once
static_assert(kBlockTokens <= kMostAtOnce);

/// The 32 bits of an escaped level, in the reader's order.
constexpr std::array<int, 3> kPieces{12, 12, 8};

constexpr int lane_of(std::int64_t token) { return static_cast<int>(token % kRansLanes); }

float value_of(int level, const LevelModel& model) {
  if (level == 0) return 0;
  const auto size = static_cast<float>(std::abs(level));
  const float value = size - (size == 1 ? model.offset_of_one : model.offset_of_more);
  return level < 0 ? -value : value;
}

const LevelModel& checked(const LevelModel& model) {
  const bool right = model.slots.size() >= 2 && model.slots.size() % 2 == 0 && model.shift >= 0 &&
                     model.shift <= kMostShift && std::isfinite(model.offset_of_one) &&
                     std::isfinite(model.offset_of_more);
  if (!right) throw InputError("", "model of levels", "", "is not one of a codec");
  return model;
}

/// Turns coefficients [tokens] into levels.
void find_levels(const float* coefficients, std::int64_t tokens, std::int32_t* levels) {
  constexpr float kMost = 2147483520;  // the largest float that is an int32
  float largest = 0;
  for (std::int64_t t = 0; t < tokens; ++t) {
    const float x = std::abs(coefficients[t]) + kRounding;
    largest = x <= kMost ? std::max(largest, x) : INFINITY;
    const auto level = static_cast<std::int32_t>(x <= kMost ? x : 0);
    levels[t] = coefficients[t] < 0 ? -level : level;
  }
  if (largest > kMost)
    throw InputError("", "coefficients", "", "are beyond 2^31 steps",
                     "are these the keys and values of the codec's model?");
}

}  // namespace

LevelCoder::Table::Table(const LevelModel& model)
    : symbols(checked(model).slots),
      shift(model.shift),
      most(symbols.symbols() / 2 - 1),
      stores(true),
      values{} {
  for (int level = -most; level <= most; ++level) values[to_size(level + most)] = value_of(level, model);
}

LevelCoder::LevelCoder(const std::vector<LevelModel>& models)
    : class_table_(std::vector<std::uint16_t>(kTokenClasses, kSlots / kTokenClasses)) {
  tables_.reserve(models.size() + 1);
  for (const LevelModel& model : models) tables_.emplace_back(model);
  tables_.emplace_back();
}

LevelCoder::Column LevelCoder::column_of(const LevelBlock& block, std::int64_t column) const {
  Column tables{};
  for (int c = 0; c < kTokenClasses; ++c) {
    const int model = block.models[c * block.columns + column];
    const Table& table = model == kNoModel ? tables_.back() : tables_[to_size(model)];
    tables.of_class[to_size(c)] = &table;
    tables.symbols[to_size(c)] = &table.symbols;
    tables.is_stored |= model != kNoModel;
    tables.has_shift |= table.shift > 0;
  }
  return tables;
}

void LevelCoder::put_column(const Column& tables, const std::vector<std::uint8_t>& classes,
                            const float* coefficients, RansWriter& writer) const {
  const auto tokens = static_cast<std::int64_t>(classes.size());
  std::array<std::int32_t, kBlockTokens> levels;
  std::array<std::uint8_t, kBlockTokens> symbols;
  find_levels(coefficients, tokens, levels.data());
  for (std::int64_t t = tokens - 1; t >= 0; --t) {
    const Table& table = *tables.of_class[classes[to_size(t)]];
    const std::int32_t level = table.stores ? levels[to_size(t)] : 0, high = level >> table.shift;
    const bool escapes = high < -table.most || high > table.most;
    symbols[to_size(t)] = static_cast<std::uint8_t>((escapes ? table.most + 1 : high) + table.most);
    auto rest = static_cast<std::uint32_t>(level);
    if (escapes) {
      for (auto bits = kPieces.rbegin(); bits != kPieces.rend(); ++bits, rest >>= *(bits - 1))
        writer.put_bits(rest & ((1U << *bits) - 1), *bits, lane_of(t));
    } else if (table.shift > 0) {
      writer.put_bits(rest & ((1U << table.shift) - 1), table.shift, lane_of(t));
    }
  }
  writer.put({tables.symbols.data(), classes.data(), tokens}, symbols.data());
}

void LevelCoder::get_column(const Column& tables, const std::vector<std::uint8_t>& classes,
                            RansReader& reader, float* coefficients) const {
  const auto tokens = static_cast<std::int64_t>(classes.size());
  std::array<std::uint8_t, kBlockTokens> symbols;
  reader.get({tables.symbols.data(), classes.data(), tokens}, symbols.data());
  bool escapes = false;
  for (std::int64_t t = 0; t < tokens; ++t) {
    const Table& table = *tables.of_class[classes[to_size(t)]];
    coefficients[t] = table.values[symbols[to_size(t)]];
    escapes |= symbols[to_size(t)] > 2 * table.most;
  }
  if (!escapes && !tables.has_shift) return;
  for (std::int64_t t = 0; t < tokens; ++t) {
    const Table& table = *tables.of_class[classes[to_size(t)]];
    const int high = symbols[to_size(t)] - table.most;
    std::uint32_t level = 0;
    if (high > table.most) {
      for (const int bits : kPieces) level = level << bits | reader.get_bits(bits, lane_of(t));
    } else if (table.shift > 0) {
      level = static_cast<std::uint32_t>(high) << table.shift | reader.get_bits(table.shift, lane_of(t));
    } else {
      continue;
    }
    coefficients[t] = static_cast<float>(static_cast<std::int32_t>(level));
  }
}

std::vector<std::uint8_t> LevelCoder::encode(const LevelBlock& block, const float* coefficients) const {
  const auto tokens = static_cast<std::int64_t>(block.classes.size());
  HS_ASSERT(tokens >= 1 && tokens <= kBlockTokens);
  RansWriter writer;
  std::array<float, kStrip * kBlockTokens> strip;
  for (std::int64_t end = block.columns; end > 0; end = (end - 1) / kStrip * kStrip) {
    const std::int64_t begin = (end - 1) / kStrip * kStrip;
    for (std::int64_t t = 0; t < tokens; ++t)
      for (std::int64_t c = begin; c < end; ++c)
        strip[to_size((c - begin) * kBlockTokens + t)] = coefficients[t * block.columns + c];
    for (std::int64_t c = end - 1; c >= begin; --c) {
      const Column tables = column_of(block, c);
      if (tables.is_stored)
        put_column(tables, block.classes, &strip[to_size((c - begin) * kBlockTokens)], writer);
    }
  }
  const std::vector<std::uint8_t> first(to_size(tokens));  // the only table
  const SymbolTable* const table = &class_table_;
  writer.put({&table, first.data(), tokens}, block.classes.data());
  return writer.finish();
}

void LevelCoder::decode(const std::uint8_t* bytes, std::int64_t size, LevelBlock& block,
                        float* coefficients) const {
  const auto tokens = static_cast<std::int64_t>(block.classes.size());
  HS_ASSERT(tokens >= 1 && tokens <= kBlockTokens);
  RansReader reader(bytes, size);
  const std::vector<std::uint8_t> first(to_size(tokens));
  const SymbolTable* const table = &class_table_;
  reader.get({&table, first.data(), tokens}, block.classes.data());
  std::array<float, kStrip * kBlockTokens> strip;
  for (std::int64_t begin = 0; begin < block.columns; begin += kStrip) {
    const std::int64_t end = std::min(begin + kStrip, block.columns);
    for (std::int64_t c = begin; c < end; ++c) {
      const Column tables = column_of(block, c);
      float* const column = &strip[to_size((c - begin) * kBlockTokens)];
      if (tables.is_stored)
        get_column(tables, block.classes, reader, column);
      else
        std::fill_n(column, tokens, 0.0F);
    }
    for (std::int64_t t = 0; t < tokens; ++t)
      for (std::int64_t c = begin; c < end; ++c)
        coefficients[t * block.columns + c] = strip[to_size((c - begin) * kBlockTokens + t)];
  }
  reader.check_end();
}

}  // namespace headspan
