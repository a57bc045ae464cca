// Codes levels: the whole numbers that coefficients of a transform become when they are divided by a step.
// How often a level occurs follows from the deviation of its column, in steps, alone: models are made for
// deviations a sixteenth of an octave apart, and each column of each class of tokens names the model that it
// uses. Levels that a model does not expect are escaped, so that every level can be coded. Not the transform,
// nor the step (io/archive/group_coder.h).
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "io/archive/rans.h"
#include "io/archive/symbol_table.h"

namespace headspan {

constexpr std::int64_t kBlockTokens = 128;  ///< tokens that are coded together, at most
constexpr int kTokenClasses = 8;            ///< classes of tokens, by how large their coefficients are
constexpr int kNoModel = -1;                ///< of a column that is not stored

/// How coefficients become levels: |x| counts as floor(|x| + kRounding) steps, so that 0 is the widest level.
constexpr float kRounding = 0.38F;

/// How levels with one deviation are coded: level >> shift as a symbol, -most .. most and one for all others,
/// and the lowest bits as they are. A level that has a symbol of its own is read as |level| minus an offset,
/// which differs between 1 and more, with its sign; every other level as it is.
struct LevelModel {
  std::vector<std::uint16_t> slots;  ///< [2 most + 2], the escape last
  int shift = 0;                     ///< 0 to 12
  float offset_of_one = 0, offset_of_more = 0;
};

/// The classes of a block's tokens and the models of its columns.
struct LevelBlock {
  std::vector<std::uint8_t> classes;  ///< [tokens], less than kTokenClasses
  std::int64_t columns = 0;
  const int* models = nullptr;  ///< [kTokenClasses, columns], kNoModel or an index
};

class LevelCoder {
 public:
  /// Throws InputError if the models are not those of a codec.
  explicit LevelCoder(const std::vector<LevelModel>& models);

  /// Codes coefficients: [tokens, columns], in steps, finite. The bytes depend on nothing but the arguments.
  /// Throws InputError if one is beyond 2^31 steps. Local.
  std::vector<std::uint8_t> encode(const LevelBlock& block, const float* coefficients) const;

  /// Sets coefficients [tokens, columns], in steps, and the block's classes, whose number says how many
  /// tokens there are. Throws InputError if the bytes are not those of such a block. Local.
  void decode(const std::uint8_t* bytes, std::int64_t size, LevelBlock& block, float* coefficients) const;

 private:
  struct Table {
    /// The table of a column that is not stored: one symbol, which takes no bits.
    Table() : symbols({kSlots}), shift(0), most(0), stores(false), values{} {}
    explicit Table(const LevelModel& model);

    SymbolTable symbols;
    int shift, most;
    bool stores;
    std::array<float, 256> values;  // by symbol, in steps, where there is no shift
  };

  /// The tables of a column, by class.
  struct Column {
    std::array<const Table*, kTokenClasses> of_class;
    std::array<const SymbolTable*, kTokenClasses> symbols;
    bool is_stored, has_shift;
  };

  Column column_of(const LevelBlock& block, std::int64_t column) const;
  void put_column(const Column& tables, const std::vector<std::uint8_t>& classes, const float* coefficients,
                  RansWriter& writer) const;
  void get_column(const Column& tables, const std::vector<std::uint8_t>& classes, RansReader& reader,
                  float* coefficients) const;

  std::vector<Table> tables_;  // of the models, and one of what is not stored
  SymbolTable class_table_;
};

}  // namespace headspan
