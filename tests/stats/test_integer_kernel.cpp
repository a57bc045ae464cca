// Products of panels in 8-bit integers: the digits and the products of the definition, everything around
// them as the kernels in floating point have it.
#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>
#include <omp.h>

#include "stats/gram/integer_kernel.h"
#include "stats/staircase_cases.h"

namespace headspan {
namespace {

constexpr std::int64_t kEverywhere = 1 << 30;

template <class T>
std::vector<double> sums_of(IntegerKernel& sums, const Case& c, std::int64_t near) {
  return written_by<T>(
      c, [&](const PanelOperands<T>& panel, const PanelOrigin& origin, const Staircase& staircase) {
        sums.add(panel, origin, staircase, near, [] {});
      });
}

/// A row or column of values as the header defines its digits.
struct Digits {
  double unit;
  std::vector<std::int64_t> a, b, c;

  explicit Digits(const std::vector<double>& values) {
    double largest = 0;
    for (const double value : values) largest = std::max(largest, std::abs(value));
    unit = largest / (127 * 65536);
    for (const double value : values) {
      const auto number = static_cast<std::int64_t>(std::nearbyint(value * (127 * 65536 / largest)));
      c.push_back((number + 128) % 256 < 0 ? (number + 128) % 256 + 128 : (number + 128) % 256 - 128);
      const std::int64_t rest = (number - c.back()) / 256;
      b.push_back((rest + 128) % 256 < 0 ? (rest + 128) % 256 + 128 : (rest + 128) % 256 - 128);
      a.push_back((rest - b.back()) / 256);
    }
  }
};

/// The sum of the products that count: six, eight or nine.
double product_of(const Digits& x, const Digits& y, int products) {
  std::int64_t sum = 0;
  for (std::size_t t = 0; t < x.a.size(); ++t) {
    sum += x.a[t] * y.a[t] * (std::int64_t{1} << 32) + (x.a[t] * y.b[t] + x.b[t] * y.a[t]) * (1 << 24) +
           (x.a[t] * y.c[t] + x.b[t] * y.b[t] + x.c[t] * y.a[t]) * (1 << 16);
    if (products >= 8) sum += (x.b[t] * y.c[t] + x.c[t] * y.b[t]) * (1 << 8);
    if (products == 9) sum += x.c[t] * y.c[t];
  }
  return static_cast<double>(sum) * x.unit * y.unit;
}

/// Values of a triangle: [size, tokens].
template <class T>
struct Triangle {
  std::int64_t size, tokens;
  std::vector<T> values;
  std::vector<double> origin;
  FirstRows first_row = steps(size, 1, 1);

  /// peak: what every 97th value is multiplied by.
  Triangle(std::int64_t size_, std::int64_t tokens_, double peak = 1)
      : size(size_), tokens(tokens_), origin(static_cast<std::size_t>(size_), 0.25) {
    std::mt19937 random(1);
    std::normal_distribution<double> normal;
    for (std::int64_t i = 0; i < size * tokens; ++i)
      values.push_back(static_cast<T>(normal(random) * (i % 97 == 0 ? peak : 1)));
  }

  std::vector<double> sums(std::int64_t near, bool fused = has_vnni()) const {
    IntegerKernel kernel(fused);
    std::vector<double> result(static_cast<std::size_t>(size * size));
    kernel.add(PanelOperands<T>{values.data(), values.data(), size, size, tokens},
               {origin.data(), origin.data()}, {result.data(), size, size, size, first_row.data()}, near,
               [] {});
    return result;
  }
  /// Returns a column less the origin.
  std::vector<double> column(std::int64_t i) const {
    std::vector<double> found;
    for (std::int64_t t = 0; t < tokens; ++t)
      found.push_back(static_cast<double>(values[static_cast<std::size_t>(i + t * size)]) -
                      origin[static_cast<std::size_t>(i)]);
    return found;
  }
};

/// Returns how many products may count for an element. A tile of 16 rows and 8 columns has those of its first
/// element, or nine if the diagonal cuts it; where tiles begin is left to the kernel.
std::vector<int> products_of(std::int64_t i, std::int64_t j, std::int64_t near, bool peaks) {
  std::vector<int> possible;
  for (std::int64_t row = std::max<std::int64_t>(0, i - 15); row <= i; ++row)
    possible.push_back(row <= j / 8 * 8 + 7 ? 9 : row < j / 8 * 8 + near || peaks ? 8 : 6);
  return possible;
}

template <class T>
void expect_definition(const Triangle<T>& triangle, std::int64_t near, bool peaks) {
  const std::vector<double> found = triangle.sums(near);
  std::vector<Digits> digits;
  for (std::int64_t i = 0; i < triangle.size; ++i) digits.emplace_back(triangle.column(i));
  for (std::int64_t j = 0; j < triangle.size; ++j)
    for (std::int64_t i = j; i < triangle.size; ++i) {
      const Digits &x = digits[static_cast<std::size_t>(i)], &y = digits[static_cast<std::size_t>(j)];
      double furthest = std::numeric_limits<double>::infinity();
      for (const int products : products_of(i, j, near, peaks))
        furthest = std::min(furthest, std::abs(found[static_cast<std::size_t>(i + j * triangle.size)] -
                                               product_of(x, y, products)));
      ASSERT_LE(furthest, 1e-15 * (product_of(x, x, 9) + product_of(y, y, 9)))
          << i << ", " << j << ", near " << near;
    }
}

TEST(IntegerKernel, SumsTheProductsOfItsDefinition) {
  for (const std::int64_t near : {std::int64_t{0}, std::int64_t{20}, kEverywhere}) {
    expect_definition(Triangle<float>(67, 1003), near, false);
    expect_definition(Triangle<float>(67, 1003, 40), near, true);
    expect_definition(Triangle<double>(40, 5), near, false);
  }
}

TEST(IntegerKernel, KeepsWithinItsBoundsAndTouchesNothingElse) {
  IntegerKernel kernel;
  for (const Case& c : cases()) {
    SCOPED_TRACE(testing::Message() << c.rows << " x " << c.columns << ", " << c.tokens << " tokens, by "
                                    << c.block);
    const std::vector<double> wanted = expected(c);
    // Values and origins are at most 9 and 4. The digits of a pair are off by 2^-23 of the largest product,
    // and so is what six products leave out.
    const double allowed = static_cast<double>(c.tokens) * 13 * 13 * std::ldexp(1, -22);
    for (const std::int64_t near : {std::int64_t{0}, kEverywhere}) {
      const std::vector<double> singles = sums_of<float>(kernel, c, near);
      ASSERT_EQ(sums_of<double>(kernel, c, near), singles);
      for (std::int64_t i = 0, n = static_cast<std::int64_t>(wanted.size()), leading = c.rows + 2; i < n;
           ++i) {
        const bool inside =
            i % leading < c.rows && i % leading >= c.first_row[static_cast<std::size_t>(i / leading)];
        const auto k = static_cast<std::size_t>(i);
        ASSERT_NEAR(singles[k], wanted[k], inside ? allowed : 0) << i;
      }
    }
  }
}

TEST(IntegerKernel, HasTheSameBitsWithAnyNumberOfThreadsAndWithoutFusedProducts) {
  const Triangle<float> triangle(300, 1500);  // two chunks
  const std::vector<double> plain = triangle.sums(128, false);
  const int before = omp_get_max_threads();
  for (const int threads : {1, 2, 5}) {
    omp_set_num_threads(threads);
    EXPECT_EQ(triangle.sums(128), plain) << threads;
  }
  omp_set_num_threads(before);
}

TEST(IntegerKernel, LeavesNoValueOutThatIsNotFinite) {
  for (const float spoilt : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                             -std::numeric_limits<float>::infinity()}) {
    Triangle<float> triangle(40, 30);
    triangle.values[17 + 12 * 40] = spoilt;
    const std::vector<double> sums = triangle.sums(0);
    for (std::int64_t j = 0; j < 40; ++j)
      for (std::int64_t i = j; i < 40; ++i)
        EXPECT_EQ(std::isfinite(sums[static_cast<std::size_t>(i + j * 40)]), i != 17 && j != 17) << i << j;
  }
}

TEST(IntegerKernel, CountsColumnsThatDoNotChangeAsZero) {
  Triangle<double> triangle(20, 50);
  for (std::int64_t t = 0; t < 50; ++t) {
    triangle.values[static_cast<std::size_t>(3 + t * 20)] = 0.25;           // the origin
    triangle.values[static_cast<std::size_t>(5 + t * 20)] = 0.25 + 1e-290;  // rounded to it
  }
  triangle.origin[6] = 0;
  for (std::int64_t t = 0; t < 50; ++t) triangle.values[static_cast<std::size_t>(6 + t * 20)] = 1e-300;
  const std::vector<double> sums = triangle.sums(kEverywhere);
  for (std::int64_t i = 7; i < 20; ++i)
    for (const std::int64_t j : {3, 5, 6}) EXPECT_EQ(sums[static_cast<std::size_t>(i + j * 20)], 0) << i << j;
}

}  // namespace
}  // namespace headspan
