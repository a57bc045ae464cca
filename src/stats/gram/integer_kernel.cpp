#include "stats/gram/integer_kernel.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "dist/kernels/register_tile.h"

namespace headspan {
namespace {

constexpr std::int64_t kDepth = 1376;  // tokens of a chunk; sums fit 32 bits up to 43 690
constexpr int kDigits = 3, kGroup = 4;
/// Of AVX-512's 32 vectors 24 hold sums.
struct TileShape {
  static constexpr int kRows = 16, kColumns = 8;
};
constexpr int kRows = TileShape::kRows, kColumns = TileShape::kColumns;
constexpr std::int64_t kStrip = 16;        // rows or columns packed at a time
constexpr std::int64_t kMostLines = 64;    // packed together, so that their values stay in a core's cache
constexpr double kLargest = 127 * 65536.;  // in units
constexpr double kMostPeaks = 64;          // of normal numbers: 10 to 20
constexpr double kSmallest = 1e-280;       // smaller values count as zero; their squares are below FP64
constexpr std::uint32_t kOffset = 0x808080, kSigns = 0x80808080;
/// Added to a number below 2^31, leaves it, rounded and plus kOffset, in the last 32 bits.
constexpr double kRounding = 6755399441055744. + kOffset;  // 1.5 * 2^52

std::int64_t groups_of(std::int64_t tokens) { return (tokens + kGroup - 1) / kGroup; }

/// Returns the bytes of `count` rows or columns, whole tiles.
std::int64_t bytes_of(std::int64_t count, std::int64_t tokens) {
  return count * groups_of(tokens) * kDigits * kGroup;
}

/// Where rows or columns are packed.
struct Place {
  std::uint8_t* bytes;
  double* units;
  double* peaks;
};

typedef std::int32_t Ints __attribute__((vector_size(4 * kRows)));
typedef std::uint32_t Words __attribute__((vector_size(4 * kRows)));
typedef std::int64_t Longs __attribute__((vector_size(8 * kRows)));
typedef double Doubles __attribute__((vector_size(8 * kRows)));

/// Adds to each lane of `sum` the products of its four bytes of x, unsigned, by those of y, signed.
template <bool Fused>
HS_INLINED inline void add_bytes(const Ints& x, const Ints& y, Ints& sum) {
#if HS_NAMED_INSTRUCTIONS
  if constexpr (Fused) {
    sum = __builtin_ia32_vpdpbusd_v16si(sum, x, y);
    return;
  }
#endif
  const Words bytes = (Words)x;
  for (int k = 0; k < kGroup; ++k) sum += (Ints)(bytes >> 8 * k & 255) * (y << (24 - 8 * k) >> 24);
}

/// Rows or columns of an operand that are packed together, at most kMostLines.
template <class T>
struct Lines {
  const T* values;  ///< those of token t begin t * leading further
  std::int64_t leading, count, tokens;
  const double* origin;
  const std::int64_t* offsets;  ///< of each from `values`; none: they are side by side

  HS_INLINED std::int64_t strips() const { return (count + kStrip - 1) / kStrip; }
  /// Returns whether all strips are whole and side by side.
  HS_INLINED bool are_plain() const { return offsets == nullptr && count % kStrip == 0; }
};

/// Returns the values of token t less the origin, from line `first` on; zeros where there is none. `Plain`:
/// see are_plain.
template <bool Plain, class T>
HS_INLINED inline Doubles load(const Lines<T>& lines, std::int64_t first, std::int64_t t) {
  typedef T Values __attribute__((vector_size(sizeof(T) * kStrip)));
  const T* const from = lines.values + t * lines.leading;
  Values values{};
  Doubles origin{};
  if constexpr (Plain) {
    std::memcpy(&values, from + first, sizeof values);
    std::memcpy(&origin, lines.origin + first, sizeof origin);
  } else {
    T some[kStrip] = {};
    double of_some[kStrip] = {};
    for (std::int64_t i = first; i < std::min(first + kStrip, lines.count); ++i) {
      some[i - first] = from[lines.offsets == nullptr ? i : lines.offsets[i]];
      of_some[i - first] = lines.origin[i];
    }
    std::memcpy(&values, some, sizeof values);
    std::memcpy(&origin, of_some, sizeof origin);
  }
  return __builtin_convertvector(values, Doubles) - origin;
}

/// Sets the units of lines, their peaks by tile, and `factors` to what their values are multiplied by.
template <int Tile, bool Plain, class T>
HS_INLINED inline void measure(const Lines<T>& lines, const Place& to, double* factors) {
  constexpr std::int64_t kTokens = 8, kAhead = 16;  // taken at a time; fetched before they are needed
  Doubles squares[kMostLines / kStrip] = {};
  Longs largest[kMostLines / kStrip] = {};  // the bits of magnitudes, which have the order of integers
  for (std::int64_t first = 0; first < lines.tokens; first += kTokens)
    for (std::int64_t strip = 0; strip < lines.strips(); ++strip) {
      Longs most = largest[strip];
      Doubles sum = squares[strip];
      for (std::int64_t t = first; t < std::min(first + kTokens, lines.tokens); ++t) {
        __builtin_prefetch(lines.values + (t + kAhead) * lines.leading + strip * kStrip, 0, 2);
        const Doubles x = load<Plain>(lines, strip * kStrip, t);
        sum += x * x;
        const Longs size = (Longs)x & 0x7fffffffffffffff;
        most = size > most ? size : most;
      }
      largest[strip] = most;
      squares[strip] = sum;
    }
  double sizes[kMostLines], square_sums[kMostLines], peaks[kMostLines];
  std::memcpy(sizes, largest, sizeof sizes);
  std::memcpy(square_sums, squares, sizeof square_sums);
  const std::int64_t count = lines.strips() * kStrip;
  for (std::int64_t i = 0; i < count; ++i) {
    const double size = sizes[i];
    const bool is_zero = size < kSmallest;
    factors[i] = is_zero ? 0 : kLargest / size;
    to.units[i] = is_zero ? 0 : size / kLargest;  // not finite if a value is not
    peaks[i] = is_zero ? 0 : size / std::sqrt(square_sums[i] / static_cast<double>(lines.tokens));
  }
  for (std::int64_t i = 0; i < count; i += Tile)
    to.peaks[i / Tile] = *std::max_element(peaks + i, peaks + i + Tile);
}

/// Sets words[d] to the digits d, plus 128, of four tokens side by side.
template <bool Plain, class T>
HS_INLINED inline void digits_of(const Lines<T>& lines, const double* factors, std::int64_t first,
                                 std::int64_t token, Words (&words)[kDigits]) {
  Doubles factor;
  std::memcpy(&factor, factors + first, sizeof factor);
  Words numbers[kGroup];  // bytes, from the last one on: c, b, a, nothing
#pragma GCC unroll 4
  for (int k = 0; k < kGroup; ++k) {
    const Doubles x = token + k < lines.tokens ? load<Plain>(lines, first, token + k) : Doubles{};
    numbers[k] = __builtin_convertvector((Longs)(x * factor + kRounding), Words);
  }
  constexpr std::uint32_t kEven = 0x00ff00ff, kOdd = 0xff00ff00;
  const Words ca01 = (numbers[0] & kEven) | (numbers[1] & kEven) << 8;
  const Words ca23 = (numbers[2] & kEven) | (numbers[3] & kEven) << 8;
  const Words b01 = (numbers[0] >> 8 & kEven) | (numbers[1] & kOdd);
  const Words b23 = (numbers[2] >> 8 & kEven) | (numbers[3] & kOdd);
  words[0] = ca01 >> 16 | (ca23 & 0xffff0000);
  words[1] = (b01 & 0xffff) | b23 << 16;
  words[2] = (ca01 & 0xffff) | ca23 << 16;
}

/// Calls use(first, group, words) with the digits of each strip of lines and group of tokens; sets their
/// units and, by tile, their peaks.
template <int Tile, class T, class Use>
HS_INLINED inline void split(const Lines<T>& lines, const Place& to, const Use& use) {
  const auto run = [&](auto plain) HS_INLINED {
    double factors[kMostLines];
    measure<Tile, plain.value>(lines, to, factors);
    for (std::int64_t group = 0; group < groups_of(lines.tokens); ++group)
      for (std::int64_t first = 0; first < lines.count; first += kStrip) {
        Words words[kDigits];
        digits_of<plain.value>(lines, factors, first, group * kGroup, words);
        use(first, group, words);
      }
  };
  if (lines.are_plain())
    run(std::true_type());
  else
    run(std::false_type());
}

/// Packs rows, in tiles of kRows.
template <class T>
struct PackRows {
  template <int Lanes>
  HS_INLINED static void run(const Lines<T>* rows, const Place* place) {
    const Lines<T> lines = *rows;
    const Place to = *place;
    split<kRows>(
        lines, to, [=](std::int64_t first, std::int64_t group, const Words(&words)[kDigits]) HS_INLINED {
          std::memcpy(
              to.bytes + bytes_of(first, lines.tokens) + group * static_cast<std::int64_t>(sizeof words),
              words, sizeof words);
        });
    for (std::int64_t i = 0; i < lines.strips() * kStrip; ++i) to.units[i] *= 65536;
  }
};

/// Packs columns, in tiles of kColumns. Those of a row of a tile have 128 too much in each digit: sums start
/// where that is taken off.
template <class T>
struct PackColumns {
  template <int Lanes, bool Fused = false>
  HS_INLINED static void run(const Lines<T>* columns, const Place* place, std::int32_t* starts) {
    constexpr std::int64_t kTile = kColumns * kGroup;
    const Lines<T> lines = *columns;
    const Place to = *place;
    const std::int64_t distance = bytes_of(kColumns, lines.tokens);
    Ints sums[kMostLines / kStrip][kDigits] = {};  // of each digit plus 128
    split<kColumns>(
        lines, to, [&](std::int64_t first, std::int64_t group, const Words(&words)[kDigits]) HS_INLINED {
          std::uint8_t* out = to.bytes + bytes_of(first, lines.tokens) + group * kDigits * kTile;
          for (int d = 0; d < kDigits; ++d, out += kTile) {
            add_bytes<Fused>((Ints)words[d], 0x01010101 - Ints{}, sums[first / kStrip][d]);
            const Words digits = words[d] ^ kSigns;
            std::memcpy(out, &digits, kTile);
            std::memcpy(out + distance, reinterpret_cast<const std::uint8_t*>(&digits) + kTile, kTile);
          }
        });
    for (std::int64_t strip = 0; strip < lines.strips(); ++strip)
      set_starts(sums[strip], lines.tokens, starts + strip * kDigits * kStrip);
  }

  HS_INLINED static void set_starts(const Ints (&sums)[kDigits], std::int64_t tokens, std::int32_t* starts) {
    const auto added = static_cast<std::int32_t>(128 * kGroup * groups_of(tokens));
    for (std::int64_t k = 0; k < kStrip; ++k) {
      std::int32_t sum = 0;
      for (std::int64_t d = 0; d < kDigits; ++d) {
        sum += sums[d][k] - added;
        starts[k / kColumns * kDigits * kColumns + d * kColumns + k % kColumns] = -128 * sum;
      }
    }
  }
};

/// A tile of rows and one of columns, packed.
struct TilePair {
  const std::uint8_t* rows;
  const double *row_units, *row_peak;
  const std::uint8_t* columns;
  const double *column_units, *column_peak;
  const std::int32_t* starts;
};

/// Returns four bytes, of digit d of column j, in every lane.
HS_INLINED inline Ints broadcast(const std::uint8_t* columns, int d, int j) {
  std::int32_t bytes = 0;
  std::memcpy(&bytes, columns + (d * kColumns + j) * kGroup, sizeof bytes);
  return bytes - Ints{};
}

/// Adds c += the product of a tile's rows and its columns First .. First + Count - 1: [kRows, Count], from
/// the digits whose numbers have a sum below Powers.
template <bool Fused, int Powers, int First, int Count>
HS_INLINED inline void add_columns(const TilePair& tile, std::int64_t groups, double* c,
                                   std::int64_t leading) {
  Ints sums[Powers][Count] = {};
#pragma GCC unroll 5
  for (int p = 0; p < Powers; ++p)
#pragma GCC unroll 8
    for (int j = 0; j < Count; ++j) {
      const std::int32_t* const start = tile.starts + First + j;  // of digits 0 .. d
      const std::int32_t others = p < kDigits ? 0 : start[(p - kDigits) * kColumns];
      sums[p][j] = start[std::min(p, kDigits - 1) * kColumns] - others - Ints{};
    }
  const std::uint8_t *rows = tile.rows, *columns = tile.columns;
  for (std::int64_t g = 0; g < groups; ++g) {
    Ints x[kDigits];
#pragma GCC unroll 3
    for (int d = 0; d < kDigits; ++d) x[d] = *reinterpret_cast<const Ints*>(rows + d * kRows * kGroup);
#pragma GCC unroll 3
    for (int e = 0; e < kDigits; ++e)
#pragma GCC unroll 8
      for (int j = 0; j < Count; ++j) {
        const Ints y = broadcast(columns, e, First + j);
#pragma GCC unroll 3
        for (int d = 0; d < kDigits; ++d)
          if (d + e < Powers) add_bytes<Fused>(x[d], y, sums[d + e][j]);
      }
    rows += kDigits * kRows * kGroup;
    columns += kDigits * kColumns * kGroup;
  }
  Doubles units;
  std::memcpy(&units, tile.row_units, sizeof units);
#pragma GCC unroll 8
  for (int j = 0; j < Count; ++j) {
    Doubles sum = __builtin_convertvector(sums[0][j], Doubles);
#pragma GCC unroll 5
    for (int p = 1; p < Powers; ++p) sum = sum * 256 + __builtin_convertvector(sums[p][j], Doubles);
    const double unit = tile.column_units[First + j] / (Powers == 3 ? 1 : Powers == 4 ? 256 : 65536);
    double* const to = c + (First + j) * leading;
    Doubles result;
    std::memcpy(&result, to, sizeof result);
    result += sum * (units * unit);
    std::memcpy(to, &result, sizeof result);
  }
}

/// The products of digits that are summed.
enum class Products { six, eight, nine };

/// Adds c += the product of a tile: [kRows, kColumns].
template <bool Fused>
HS_INLINED inline void add_tile(const TilePair& tile, std::int64_t groups, Products products, double* c,
                                std::int64_t leading) {
  constexpr int kHalf = kColumns / 2;  // more sums of a whole tile would not fit the processor's vectors
  prefetch_result<TileShape>(c, leading);
  if (products == Products::six) return add_columns<Fused, 3, 0, kColumns>(tile, groups, c, leading);
  if (products == Products::eight) {
    add_columns<Fused, 4, 0, kHalf>(tile, groups, c, leading);
    add_columns<Fused, 4, kHalf, kHalf>(tile, groups, c, leading);
  } else {
    add_columns<Fused, 5, 0, kHalf>(tile, groups, c, leading);
    add_columns<Fused, 5, kHalf, kHalf>(tile, groups, c, leading);
  }
}

/// Adds a packed block of rows.
struct AddBlock {
  template <int Lanes, bool Fused = false>
  HS_INLINED static void run(const ResultBlock* block, const TilePair* first, std::int64_t near) {
    const TilePair start = *first;
    const std::int64_t tokens = block->depth, groups = groups_of(tokens), above = block->above;
    const std::int64_t* const first_row = block->c.first_row;
    const std::int64_t columns = block->c.columns;
    for_tiles<kRows, kColumns>(
        *block, [=](std::int64_t row, std::int64_t column, double* c, std::int64_t leading) HS_INLINED {
          const TilePair tile{start.rows + bytes_of(row, tokens), start.row_units + row,
                              start.row_peak + row / kRows,       start.columns + bytes_of(column, tokens),
                              start.column_units + column,        start.column_peak + column / kColumns,
                              start.starts + column * kDigits};
          const std::int64_t below = row + above - first_row[std::min(column + kColumns, columns) - 1];
          const bool is_near = row + above < first_row[column] + near;
          const bool has_peaks = *tile.row_peak * *tile.column_peak > kMostPeaks;
          const Products products = below <= 0             ? Products::nine
                                    : is_near || has_peaks ? Products::eight
                                                           : Products::six;
          add_tile<Fused>(tile, groups, products, c, leading);
        });
  }
};

}  // namespace

void IntegerKernel::Packing::reserve(Digits& digits, std::int64_t count, std::int64_t tokens) const {
  digits.bytes.reserve(bytes_of(count, tokens));
  digits.units.reserve(count);
  digits.peaks.reserve(count);
  digits.starts.reserve(count * kDigits);
}

template <class T>
void IntegerKernel::Packing::pack_columns(const Chunk<T>& chunk, std::int64_t first, Digits& to) const {
  const PanelOperands<T>& panel = *chunk.panel;
  std::int64_t offsets[kMostLines];
  const bool plain = neighbours(panel, chunk.column, chunk.columns) == chunk.columns;
  for (std::int64_t j = 0; !plain && j < chunk.columns; ++j) offsets[j] = panel.offset(chunk.column + j);
  const Lines<T> lines{
      panel.columns + chunk.token * panel.leading_columns + (plain ? panel.offset(chunk.column) : 0),
      panel.leading_columns,
      chunk.columns,
      chunk.tokens,
      chunk.origin.columns + chunk.column,
      plain ? nullptr : offsets};
  const Place place{to.bytes.data() + bytes_of(first, chunk.tokens), to.units.data() + first,
                    to.peaks.data() + first / kColumns};
  std::int32_t* const starts = to.starts.data() + first * kDigits;
#if HS_SEVERAL_PROCESSORS
  if (fused) return run_with_vnni<PackColumns<T>>(&lines, &place, starts);
#endif
  for_this_processor<PackColumns<T>>(&lines, &place, starts);
}

template <class T>
void IntegerKernel::Packing::pack_rows(const Strip<T>& rows, Digits& to) const {
  for (std::int64_t i = 0; i < rows.count; i += kMostLines) {
    const Lines<T> lines{rows.values + i, rows.leading,    std::min(kMostLines, rows.count - i),
                         rows.depth,      rows.origin + i, nullptr};
    const Place place{to.bytes.data() + bytes_of(i, rows.depth), to.units.data() + i,
                      to.peaks.data() + i / kRows};
    for_this_processor<PackRows<T>>(&lines, &place);
  }
}

void IntegerKernel::Packing::add(const Digits& rows, const Digits& columns, const ResultBlock& block) const {
  const TilePair first{rows.bytes.data(),    rows.units.data(),    rows.peaks.data(),    columns.bytes.data(),
                       columns.units.data(), columns.peaks.data(), columns.starts.data()};
#if HS_SEVERAL_PROCESSORS
  if (fused) return run_with_vnni<AddBlock>(&block, &first, near);
#endif
  for_this_processor<AddBlock>(&block, &first, near);
}

template <class T>
void IntegerKernel::add(const PanelOperands<T>& panel, const PanelOrigin& origin, const Staircase& c,
                        std::int64_t near, const std::function<void()>& progress) {
  product_.packing().near = near;
  product_.add(panel, origin, c, kDepth, progress);
}

template void IntegerKernel::add(const PanelOperands<double>&, const PanelOrigin&, const Staircase&,
                                 std::int64_t, const std::function<void()>&);
template void IntegerKernel::add(const PanelOperands<float>&, const PanelOrigin&, const Staircase&,
                                 std::int64_t, const std::function<void()>&);

}  // namespace headspan
