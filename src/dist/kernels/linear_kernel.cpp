#include "dist/kernels/linear_kernel.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include <omp.h>

#include "base/process/cpu_dispatch.h"
#include "base/range.h"
#include "dist/kernels/register_tile.h"
#include "dist/kernels/row_blocks.h"
#include "dist/matrix/large_array.h"

namespace headspan {
namespace {

constexpr std::int64_t kMostTerms = 768;  // times kMostBlockRows fits a core's second-level cache
constexpr std::int64_t kTermStep = 16;    // a multiple of every vector
constexpr std::int64_t kTokens = 2048;    // times kMostTerms fits the cache that cores share
constexpr std::int64_t kTokenStep = 8;    // a multiple of every tile's columns

/// Rows of a row-major matrix, of which some terms are multiplied: [count, terms], rows `leading` apart.
template <class T>
struct Rows {
  const T* values;
  std::int64_t leading, count, terms;

  Rows part(std::int64_t first, std::int64_t most) const {
    return {values + first * leading, leading, std::min(most, count - first), terms};
  }
};

/// Where a block of y is: [tokens, rows], row-major, `outputs` from one token to the next.
struct Result {
  float* values;
  std::int64_t outputs, tokens, rows;
  bool adds;  ///< to what is there
};

template <int Size>
struct Square {
  typedef float Values __attribute__((vector_size(4 * Size)));
  Values rows[Size];

  HS_INLINED void load(int row, const float* from) { std::memcpy(&rows[row], from, sizeof rows[row]); }
  HS_INLINED void load(int row, const std::uint16_t* from) {
    std::uint32_t bits[Size];
    for (int i = 0; i < Size; ++i) bits[i] = std::uint32_t{from[i]} << 16;
    std::memcpy(&rows[row], &bits, sizeof bits);
  }
};

template <int Begin, class Values, int... I>
HS_INLINED inline Values interleaved(const Values& a, const Values& b, std::integer_sequence<int, I...>) {
  constexpr int kSize = sizeof...(I);
  return __builtin_shufflevector(a, b, (I % 2 * kSize + Begin + I / 2)...);
}

/// Transposes a square: a perfect shuffle of its rows' values, log2(Size) times.
template <int Size>
HS_INLINED inline void transpose(Square<Size>& square) {
  constexpr auto kEach = std::make_integer_sequence<int, Size>();
#pragma GCC unroll 4
  for (int times = 1; times < Size; times *= 2) {
    const Square<Size> from = square;
#pragma GCC unroll 8
    for (int i = 0; i < Size / 2; ++i) {
      square.rows[2 * i] = interleaved<0>(from.rows[i], from.rows[i + Size / 2], kEach);
      square.rows[2 * i + 1] = interleaved<Size / 2>(from.rows[i], from.rows[i + Size / 2], kEach);
    }
  }
}

/// Packs at most Width rows into one panel, [Width, terms], column-major, with zeros below the last row.
template <int Lanes, int Width, class T>
HS_INLINED inline void pack_panel(const Rows<T>& rows, float* to) {
  constexpr int kSize = Width % Lanes == 0 ? Lanes : Width;
  static_assert(kTermStep % kSize == 0);
  const std::int64_t squares = rows.terms / kSize * kSize;
  for (std::int64_t t = 0; t < squares; t += kSize) {
#pragma GCC unroll 4
    for (int row = 0; row < Width; row += kSize) {
      Square<kSize> square = {};
#pragma GCC unroll 16
      for (int i = 0; i < kSize; ++i)
        if (row + i < rows.count) square.load(i, rows.values + (row + i) * rows.leading + t);
      transpose(square);
#pragma GCC unroll 16
      for (int i = 0; i < kSize; ++i)
        std::memcpy(to + (t + i) * Width + row, &square.rows[i], sizeof square.rows[i]);
    }
  }
  for (std::int64_t t = squares; t < rows.terms; ++t)
    for (int i = 0; i < Width; ++i)
      to[t * Width + i] = i < rows.count ? widened(rows.values[i * rows.leading + t]) : 0;
}

struct PackTokens {
  template <int Lanes>
  HS_INLINED static void run(const Rows<float>* rows, float* to) {
    constexpr int kWidth = RegisterTile<Lanes, float>::kColumns;
    for (std::int64_t i = 0; i < rows->count; i += kWidth)
      pack_panel<Lanes, kWidth>(rows->part(i, kWidth), to + i * rows->terms);
  }
};

/// Sets or adds to a whole tile of y: [Tile::kColumns tokens, Tile::kRows].
template <int Lanes>
HS_INLINED inline void store_sums(const typename RegisterTile<Lanes, float>::Sums& sums, const Result& y) {
  using Shape = RegisterTile<Lanes, float>;
#pragma GCC unroll 8
  for (int j = 0; j < Shape::kColumns; ++j)
#pragma GCC unroll 3
    for (int r = 0; r < Shape::kVectors; ++r) {
      float* const to = y.values + j * y.outputs + r * Shape::kLanes;
      typename Shape::Values values = sums[j][r];
      if (y.adds) {
        typename Shape::Values before;
        std::memcpy(&before, to, sizeof before);
        values += before;
      }
      std::memcpy(to, &values, sizeof values);
    }
}

/// Computes a tile of y, which an edge may cut. weight: [Tile::kRows, terms] and x: [Tile::kColumns, terms],
/// packed.
template <int Lanes>
HS_INLINED inline void multiply_tile(const float* weight, const float* x, std::int64_t terms,
                                     const Result& y) {
  using Shape = RegisterTile<Lanes, float>;
  const bool whole = y.tokens >= Shape::kColumns && y.rows >= Shape::kRows;
  if (whole) prefetch_result<Shape>(y.values, y.outputs);
  typename Shape::Sums sums;
  sum_tile<Lanes>(weight, x, terms, sums);
  if (whole) return store_sums<Lanes>(sums, y);
  float cut[Shape::kColumns * Shape::kRows];
  store_sums<Lanes>(sums, {cut, Shape::kRows, Shape::kColumns, Shape::kRows, false});
  for (std::int64_t j = 0; j < std::min<std::int64_t>(Shape::kColumns, y.tokens); ++j)
    for (std::int64_t i = 0; i < std::min<std::int64_t>(Shape::kRows, y.rows); ++i) {
      float& to = y.values[j * y.outputs + i];
      to = cut[j * Shape::kRows + i] + (y.adds ? to : 0);
    }
}

/// Computes a block of y from rows of weight, which are packed first, and packed tokens.
template <class W>
struct MultiplyRows {
  template <int Lanes>
  HS_INLINED static void run(const Rows<W>* weight, float* packed, const float* x, const Result* y) {
    using Shape = RegisterTile<Lanes, float>;
    const std::int64_t terms = weight->terms;
    for (std::int64_t row = 0; row < weight->count; row += Shape::kRows)
      pack_panel<Lanes, Shape::kRows>(weight->part(row, Shape::kRows), packed + row * terms);
    for (std::int64_t token = 0; token < y->tokens; token += Shape::kColumns)
      for (std::int64_t row = 0; row < weight->count; row += Shape::kRows)
        multiply_tile<Lanes>(packed + row * terms, x + token * terms, terms,
                             {y->values + token * y->outputs + row, y->outputs, y->tokens - token,
                              weight->count - row, y->adds});
  }
};

std::int64_t rounded_up(std::int64_t count, std::int64_t step) { return (count + step - 1) / step * step; }

/// Packed operands of some terms.
struct Room {
  explicit Room(std::int64_t tokens, std::int64_t rows, std::int64_t terms)
      : weight(static_cast<std::size_t>(omp_get_max_threads())) {
    x.reserve(rounded_up(tokens, kTokenStep) * terms);
    for (LargeArray<float>& packed : weight)
      packed.reserve(std::min(kMostBlockRows, rounded_up(rows, kTileRowStep)) * terms);
  }

  LargeArray<float> x;
  std::vector<LargeArray<float>> weight;  // by thread
};

/// A block of y that one thread computes.
struct Block {
  Range rows, tokens;
};

/// Cuts y into blocks that threads take in turn: first blocks of rows, and the last of these by tokens as
/// well, so that threads end together, and all have work where there are few rows.
std::vector<Block> cut_blocks(std::int64_t rows, std::int64_t tokens, std::int64_t threads) {
  const std::vector<Range> by_rows = row_blocks(0, rows, threads);
  const std::int64_t last = threads == 1 ? 0 : 2 * threads, steps = (tokens + kTokenStep - 1) / kTokenStep;
  std::vector<Block> blocks;
  for (std::size_t i = 0; i < by_rows.size(); ++i) {
    const bool is_cut = static_cast<std::int64_t>(by_rows.size() - i) <= last;
    const std::int64_t parts = is_cut ? std::min(steps, last) : 1;
    for (std::int64_t part = 0; part < parts; ++part) {
      const Range range = range_of(steps, parts, part);
      const std::int64_t first = range.first * kTokenStep;
      blocks.push_back({by_rows[i], {first, std::min(range.count * kTokenStep, tokens - first)}});
    }
  }
  return blocks;
}

/// Computes rows of y from some terms of their sums; the threads of the process share its blocks.
template <class W>
void multiply_terms(int lanes, const Rows<float>& x, const Rows<W>& weight, Room& room, const Result& y) {
  const std::vector<Block> blocks = cut_blocks(weight.count, x.count, omp_get_max_threads());
  float* const packed_x = room.x.data();
#pragma omp parallel
  {
#pragma omp for schedule(static)
    for (std::int64_t token = 0; token < x.count; token += kTokenStep) {
      const Rows<float> step = x.part(token, kTokenStep);
      run_with<PackTokens>(lanes, &step, packed_x + token * x.terms);
    }
    float* const packed = room.weight[static_cast<std::size_t>(omp_get_thread_num())].data();
#pragma omp for schedule(dynamic)
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      const auto& [of_rows, of_tokens] = blocks[i];
      const Rows<W> rows = weight.part(of_rows.first, of_rows.count);
      const Result part{y.values + of_tokens.first * y.outputs + of_rows.first, y.outputs, of_tokens.count,
                        rows.count, y.adds};
      const float* const tokens = packed_x + of_tokens.first * x.terms;
      run_with<MultiplyRows<W>>(lanes, &rows, packed, tokens, &part);
    }
  }
}

}  // namespace

template <class W>
void multiply_linear(const LinearOperands<W>& operands, float* y, int lanes) {
  const auto [x, tokens, inputs, weight, outputs, row] = operands;
  const std::int64_t chunks = std::max<std::int64_t>(1, (inputs + kMostTerms - 1) / kMostTerms);
  const std::int64_t most = std::max(kTermStep, rounded_up((inputs + chunks - 1) / chunks, kTermStep));
  Room room(std::min(kTokens, tokens), outputs, most);
  for (std::int64_t token = 0; token < tokens; token += kTokens) {
    const std::int64_t count = std::min(kTokens, tokens - token);
    for (std::int64_t first = 0; first == 0 || first < inputs; first += most) {
      const std::int64_t terms = std::min(most, inputs - first);
      multiply_terms<W>(lanes, {x + token * inputs + first, inputs, count, terms},
                        {weight + first, row, outputs, terms}, room,
                        {y + token * outputs, outputs, count, outputs, first > 0});
    }
  }
}

template void multiply_linear(const LinearOperands<float>&, float*, int);
template void multiply_linear(const LinearOperands<std::uint16_t>&, float*, int);

}  // namespace headspan
