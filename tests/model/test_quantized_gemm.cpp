// Products of few rows with coded columns against sums in float64 of what the codes mean, at sizes around the
// kernels' blocks.
#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "model/kernels/quantized_gemm.h"

namespace headspan {
namespace {

constexpr double kBefore = 0.5;  // what the kernels add to
constexpr std::int64_t kPadding = 3;

struct Shape {
  int bits;  // of the first section
  std::int64_t rows, tokens, columns;
  int sections;

  std::string text() const {
    return std::to_string(bits) + " bits, " + std::to_string(rows) + " rows, " + std::to_string(tokens) +
           " tokens, " + std::to_string(columns) + " columns, " + std::to_string(sections) + " sections";
  }
};

std::vector<Shape> shapes() {
  std::vector<Shape> all;
  for (int bits = 1; bits <= 8; ++bits)
    for (const std::int64_t rows : {1, 3, 4, 5, 9, 16})
      for (const std::int64_t tokens : {1, 2, 7, 9, 17, 63, 64})
        for (const std::int64_t columns : {1, 7, 8, 9, 64, 127, 130, 300})
          for (const int sections : {1, 2, 4})
            if (sections == 1 || columns > 8 * sections)
              all.push_back({bits, rows, tokens, columns, sections});
  return all;
}

/// Random codes behind a scale in records of their own length, and what they mean.
struct Stored {
  std::vector<std::uint8_t> bytes;
  QuantizedBlock block{};
  std::vector<double> values;  // [tokens, columns]
  std::vector<double> spread;  // likewise: how far from the middle of the codes

  /// whole: steps of 1, so that products of integers are integers.
  Stored(const Shape& shape, bool whole) {
    std::mt19937 engine(3);
    std::uniform_real_distribution<float> real(0.25F, 1);
    std::int64_t stride = 2;
    for (std::int64_t columns = shape.columns; columns > 0; columns -= block.sections[block.count++].count) {
      const bool last = block.count + 1 == shape.sections;
      const int bits = 1 + (shape.bits - 1 + 3 * block.count) % 8;
      const std::int64_t count = last ? columns : shape.columns / shape.sections / 8 * 8;
      block.sections[block.count] = {nullptr, 0, shape.tokens, bits, count};
      stride += (count * bits + 7) / 8;
    }
    bytes.assign(static_cast<std::size_t>(shape.tokens * stride + 7), 0xff);
    for (std::int64_t t = 0; t < shape.tokens; ++t) {
      block.step[t] = whole ? 1 : real(engine);
      block.middle[t] = whole ? -3 : -real(engine);
      std::size_t at = static_cast<std::size_t>(2 + t * stride);
      for (int s = 0; s < block.count; ++s) {
        write(block.sections[s], t, at, engine);
        if (t == 0) block.sections[s].codes = bytes.data() + at;
        block.sections[s].stride = stride;
        at += static_cast<std::size_t>((block.sections[s].count * block.sections[s].bits + 7) / 8);
      }
    }
  }

  /// Draws the codes of token t in a section, which begin at a byte.
  void write(const CodedRows& section, std::int64_t t, std::size_t at, std::mt19937& engine) {
    for (std::int64_t c = 0; c < section.count; ++c) {
      const auto code = static_cast<unsigned>(engine() % (1U << section.bits));
      put(at, c * section.bits, section.bits, code);
      const double step = static_cast<double>(block.step[t]), out = code - std::exp2(section.bits - 1);
      values.push_back(static_cast<double>(block.middle[t]) + out * step);
      spread.push_back(std::abs(out) * step);
    }
  }

  void put(std::size_t byte, std::int64_t bit, int bits, unsigned code) {
    for (int b = 0; b < bits; ++b) {
      std::uint8_t& to = bytes[byte + static_cast<std::size_t>((bit + b) / 8)];
      const auto mask = static_cast<std::uint8_t>(1U << ((bit + b) % 8));
      to = static_cast<std::uint8_t>((code >> b & 1U) != 0 ? to | mask : to & ~mask);
    }
  }
};

/// [rows, columns], `kPadding` behind each. whole: integers of which 32767 is the largest in each row.
std::vector<float> draw(std::int64_t rows, std::int64_t columns, bool whole) {
  std::mt19937 engine(5);
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<std::size_t>(rows * (columns + kPadding)));
  for (std::size_t i = 0; i < x.size(); ++i) {
    const bool first = i % static_cast<std::size_t>(columns + kPadding) == 0;
    x[i] = whole ? (first ? 32767 : std::rint(normal(engine) * 5000)) : normal(engine);
    if (whole) x[i] = std::clamp(x[i], -32767.0F, 32767.0F);
  }
  return x;
}

/// The worst of |got - expected| / bound; infinite where something behind the columns was touched.
template <class Expected, class Bound>
double worst_of(const std::vector<float>& y, std::int64_t rows, std::int64_t columns,
                const Expected& expected, const Bound& bound) {
  double worst = 0;
  for (std::int64_t m = 0; m < rows; ++m)
    for (std::int64_t i = 0; i < columns + kPadding; ++i) {
      const auto got = static_cast<double>(y[static_cast<std::size_t>(m * (columns + kPadding) + i)]);
      if (i >= columns) {
        if (got != kBefore) return std::numeric_limits<double>::infinity();
        continue;
      }
      worst = std::max(worst, std::abs(got - kBefore - expected(m, i)) / bound(m, i));
    }
  return worst;
}

/// Sums over k < terms: expected of x z, and what may be lost: half a unit of the integers of row m times how
/// far z is from the middle of its codes, and float32's rounding of the sum of sizes.
template <class X, class Z, class Spread, class Unit>
double worst_sum(const std::vector<float>& y, std::int64_t rows, std::int64_t columns, std::int64_t terms,
                 const X& x, const Z& z, const Spread& spread, const Unit& unit) {
  const auto expected = [&](std::int64_t m, std::int64_t i) {
    double sum = 0;
    for (std::int64_t k = 0; k < terms; ++k) sum += x(m, k) * z(i, k);
    return sum;
  };
  const auto bound = [&](std::int64_t m, std::int64_t i) {
    double lost = 1e-6;
    for (std::int64_t k = 0; k < terms; ++k)
      lost += 0.501 * unit(m) * spread(i, k) + 1e-6 * std::abs(x(m, k)) * (std::abs(z(i, k)) + spread(i, k));
    return lost;
  };
  return worst_of(y, rows, columns, expected, bound);
}

/// whole: everything is an integer, and nothing may be lost but float32's rounding.
double transposed_error(const Shape& shape, bool whole, bool on_bytes) {
  const Stored stored(shape, whole);
  const std::int64_t leading = shape.columns + kPadding;
  const std::vector<float> x = draw(shape.rows, shape.columns, whole);
  std::vector<float> y(static_cast<std::size_t>(shape.rows * (shape.tokens + kPadding)), kBefore);
  quantized_gemm_transposed(IntegerRows(x.data(), leading, shape.rows, shape.columns, on_bytes), stored.block,
                            y.data(), shape.tokens + kPadding);
  const auto at = [&](const auto& of, std::int64_t t, std::int64_t c) {
    return of[static_cast<std::size_t>(t * shape.columns + c)];
  };
  const auto own = [&](std::int64_t m, std::int64_t c) {
    return static_cast<double>(x[static_cast<std::size_t>(m * leading + c)]);
  };
  const auto unit = [&](std::int64_t m) {
    double largest = 0;
    for (std::int64_t c = 0; c < shape.columns; ++c) largest = std::max(largest, std::abs(own(m, c)));
    return whole ? 0 : largest / 32767;
  };
  return worst_sum(
      y, shape.rows, shape.tokens, shape.columns, own,
      [&](std::int64_t t, std::int64_t c) { return at(stored.values, t, c); },
      [&](std::int64_t t, std::int64_t c) { return at(stored.spread, t, c); }, unit);
}

double product_error(const Shape& shape, bool whole, bool on_bytes) {
  const Stored stored(shape, whole);
  const std::int64_t leading = shape.tokens + kPadding;
  const std::vector<float> w = draw(shape.rows, shape.tokens, whole);
  std::vector<float> y(static_cast<std::size_t>(shape.rows * (shape.columns + kPadding)), kBefore);
  quantized_gemm(w.data(), leading, shape.rows, stored.block, y.data(), shape.columns + kPadding, on_bytes);
  const auto at = [&](const auto& of, std::int64_t t, std::int64_t c) {
    return of[static_cast<std::size_t>(t * shape.columns + c)];
  };
  const auto own = [&](std::int64_t m, std::int64_t t) {
    return static_cast<double>(w[static_cast<std::size_t>(m * leading + t)]);
  };
  const auto unit = [&](std::int64_t m) {
    double largest = 0;
    for (std::int64_t t = 0; t < shape.tokens; ++t)
      largest = std::max(largest, std::abs(own(m, t)) * static_cast<double>(stored.block.step[t]));
    return whole ? 0 : largest / 32767;
  };
  return worst_sum(
      y, shape.rows, shape.columns, shape.tokens, own,
      [&](std::int64_t c, std::int64_t t) { return at(stored.values, t, c); },
      [&](std::int64_t c, std::int64_t t) {
        return at(stored.spread, t, c) / static_cast<double>(stored.block.step[t]);
      },
      unit);
}

/// Calls check(shape, on_bytes) for codes as 16-bit integers and, if the processor can, as bytes.
template <class Check>
void for_each_case(const Check& check) {
  for (const Shape& shape : shapes()) {
    check(shape, false);
    if (has_vbmi()) check(shape, true);
  }
}

TEST(CodedRows, times_a_transposed_block) {
  for_each_case([](const Shape& shape, bool on_bytes) {
    EXPECT_LE(transposed_error(shape, false, on_bytes), 1) << shape.text() << (on_bytes ? ", bytes" : "");
  });
}

TEST(CodedRows, times_a_block) {
  for_each_case([](const Shape& shape, bool on_bytes) {
    EXPECT_LE(product_error(shape, false, on_bytes), 1) << shape.text() << (on_bytes ? ", bytes" : "");
  });
}

TEST(CodedRows, integers_are_multiplied_as_they_are) {
  for_each_case([](const Shape& shape, bool on_bytes) {
    if (shape.rows > 5) return;
    EXPECT_LE(transposed_error(shape, true, on_bytes), 1) << shape.text() << (on_bytes ? ", bytes" : "");
    EXPECT_LE(product_error(shape, true, on_bytes), 1) << shape.text() << (on_bytes ? ", bytes" : "");
  });
}

TEST(CodedRows, nothing_comes_of_zeros) {
  const Shape shape{3, 2, 5, 9, 1};
  const Stored stored(shape, false);
  const std::vector<float> zeros(64, 0);
  std::vector<float> y(64, kBefore);
  quantized_gemm(zeros.data(), 5, 2, stored.block, y.data(), 9);
  quantized_gemm_transposed(IntegerRows(zeros.data(), 9, 2, 9), stored.block, y.data(), 5);
  EXPECT_EQ(y, std::vector<float>(64, kBefore));
}

}  // namespace
}  // namespace headspan
