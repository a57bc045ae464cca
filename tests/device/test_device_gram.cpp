// Grams gathered on a device against those of the host's Collector and against sums in long double: on the
// CPU with every number of ranks, and on GPUs if there are any. Ranks that share a GPU exchange over the
// host.
#include <algorithm>
#include <cmath>
#include <memory>
#include <string>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "base/range.h"
#include "device/device_collector.h"
#include "device/device_values.h"
#include "dist/comm/gpu.h"
#include "stats/gram/product_kind.h"
#include "support/grids.h"
#include "support/synthetic.h"

namespace headspan {
namespace {

constexpr Precision kPrecisions[] = {Precision::float64, Precision::float32, Precision::split,
                                     Precision::bfloat16};

std::string name_of(Precision precision) {
  const char* const names[] = {"float64", "float32", "split", "bfloat16"};
  return names[static_cast<int>(precision)];
}

// Of G_ij in units of sqrt(G_ii G_jj), by Cauchy and Schwarz. Sums in FP64 of 10^4 tokens err by 1e-13 at the
// very most. Sums in FP32 of a panel of 4096 tokens: 2^-24 for each of 64 = sqrt(4096) steps of a random
// walk, four times that to be safe. Products of bfloat16 have so few bits that their errors need not cancel:
// the bound for sums in sequence (Higham, Accuracy and Stability, 4.2), which small products of OpenBLAS are.
constexpr double kDoubleSums = 1e-13, kFloatSums = 4 * 64 * 0x1p-24, kBfloat16Sums = 4096 * 0x1p-24;

/// GPUs multiply the values of split in FP32, not hi + lo, as integers.
bool is_in_integers(Precision precision, at::Device device) {
  return precision == Precision::split && device.is_cuda();
}

/// Returns whether host and device multiply the same values.
bool multiply_alike(Precision precision, at::Device device) {
  const bool host_integers = fastest_product(precision) == ProductKind::integers;
  return !host_integers && !is_in_integers(precision, device);
}

/// How far G may be from that of the values that are multiplied: integers are within half a 2^-23rd of the
/// largest, which is below 8 deviations here, in both factors.
double sums_error(Precision precision, at::Device device) {
  if (is_in_integers(precision, device)) return 8 * 0x1p-22;
  if (precision == Precision::bfloat16) return kBfloat16Sums;
  return multiplies_doubles(precision) ? kDoubleSums : kFloatSums;
}

/// And these from values that were not rounded: both factors of a product by the relative error of a value.
double rounding_error(Precision precision, at::Device device) {
  if (is_in_integers(precision, device)) return 2 * 0x1p-24;
  switch (precision) {
    case Precision::float64:
      return 0;
    case Precision::float32:
      return 2 * 0x1p-24;
    case Precision::split:
      return 2 * 0x1p-18;
    case Precision::bfloat16:
      return 2 * 0x1p-9 + 0x1p-18;
  }
  return 0;
}

/// The Gram of all rows, [n, n], and their mean: two passes in long double.
struct Reference {
  std::vector<long double> mean, gram;

  explicit Reference(const Activations& z)
      : mean(static_cast<std::size_t>(z.columns)), gram(static_cast<std::size_t>(z.columns * z.columns)) {
    for (std::int64_t t = 0; t < z.tokens; ++t)
      for (std::int64_t j = 0; j < z.columns; ++j) mean[static_cast<std::size_t>(j)] += z.at(t, j);
    for (long double& value : mean) value /= static_cast<long double>(z.tokens);
    for (std::int64_t t = 0; t < z.tokens; ++t)
      for (std::int64_t j = 0; j < z.columns; ++j)
        for (std::int64_t i = 0; i < z.columns; ++i)
          gram[static_cast<std::size_t>(i + j * z.columns)] +=
              (z.at(t, i) - mean[static_cast<std::size_t>(i)]) *
              (z.at(t, j) - mean[static_cast<std::size_t>(j)]);
  }
};

/// How far the elements may be off, in units of sqrt(G_ii G_jj): by rounded values and by the sums of their
/// products. The mean is a sum in FP64, but a shift that differs in its last bit rounds some values the other
/// way.
template <class Numbers>
void expect_gram(const HeadGram& gram, std::int64_t tokens, const Numbers& mean, const Numbers& expected,
                 double rounding, double sums) {
  ASSERT_EQ(gram.tokens, tokens);
  const std::vector<double> values = gather_symmetric(gram.matrix);
  const std::size_t n = gram.mean.size();
  for (std::size_t j = 0; j < n; ++j) {
    // The shifted values' mean errs as a value does, relative to their deviation.
    const double deviation =
        std::sqrt(static_cast<double>(expected[j + j * n]) / static_cast<double>(tokens));
    EXPECT_NEAR(
        gram.mean[j], static_cast<double>(mean[j]),
        (rounding + std::min(sums, kFloatSums)) * deviation + 1e-15 * std::abs(static_cast<double>(mean[j])));
    for (std::size_t i = 0; i < n; ++i)
      ASSERT_NEAR(
          values[i + j * n], static_cast<double>(expected[i + j * n]),
          (rounding + sums) * std::sqrt(static_cast<double>(expected[i + i * n] * expected[j + j * n])))
          << i << ", " << j;
  }
}

void expect_same_bits(const std::vector<StreamGrams>& a, const std::vector<StreamGrams>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t s = 0; s < a.size(); ++s) {
    EXPECT_EQ(a[s].fit.mean, b[s].fit.mean);
    EXPECT_EQ(gather_symmetric(a[s].fit.matrix), gather_symmetric(b[s].fit.matrix));
    EXPECT_EQ(gather_symmetric(a[s].heldout->matrix), gather_symmetric(b[s].heldout->matrix));
  }
}

const DeviceShare kEverything{{0, 1}, {Part::fit, Part::heldout}, {}};

/// Copies the state of `from`, as if it had been saved and read.
template <class T>
void copy_state(Collector<T>& from, Collector<T>& to) {
  for (std::size_t s = 0; s < 2; ++s) {
    CollectedStream<T>&source = from.stream(s), &target = to.stream(s);
    target.shift = source.shift;
    for (std::size_t part = 0; part < 2; ++part) {
      const Matrix& matrix = source.sums[part].matrix;
      std::copy_n(matrix.data(), matrix.leading() * matrix.local_columns(), target.sums[part].matrix.data());
      target.sums[part].sum = source.sums[part].sum;
      target.sums[part].tokens = source.sums[part].tokens;
      const WaitingRows<T>& waiting = source.waiting[part];
      std::copy_n(waiting.rows.data(), waiting.tokens * source.columns,
                  to.add_rows(s, static_cast<Part>(part), waiting.tokens));
    }
  }
}

class DeviceGramList : public testing::TestWithParam<at::DeviceType> {
 protected:
  void SetUp() override {
    const Comm world = Comm::duplicate(MPI_COMM_WORLD);
    std::optional<int> gpu;
    if (GetParam() == at::kCUDA) {
      const int fewest = world.min(visible_gpus().count);
      if (fewest == 0) GTEST_SKIP() << "there is no GPU";
      if (fewest >= world.size()) gpu = world.rank();
      device_ = at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(gpu.value_or(0)));
    }
    set_exact_products();
    comm_ = make_device_comm(world, gpu);
  }

  /// Streams of 30 and 7 columns in blocks of 4 and 3, which divide neither, and stripes of 8 and 6.
  const std::vector<std::int64_t> columns_{30, 7}, blocks_{4, 3};

  template <class T>
  DeviceCollector<T> on_device(const Grid& grid, Precision precision, at::ScalarType type) const {
    DeviceCollector<T> collector(grid, *comm_, {columns_, blocks_, precision, true}, device_, type, 5);
    collector.start_share(kEverything);
    return collector;
  }

  /// Adds rows [first, last) of z[stream][part] as one round: uneven shares, none for every third rank.
  template <class T>
  void add_round(DeviceCollector<T>& collector, const Activations (&z)[2][2], std::int64_t first,
                 std::int64_t last, const DeviceShare& share = kEverything) const {
    const Range mine = dealt_tokens(last - first, comm_->size(), comm_->rank());
    for (const Part part : share.parts) {
      for (const std::size_t s : share.streams) {
        const Activations& rows = z[s][static_cast<std::size_t>(part)];
        at::Tensor room = collector.add_rows(s, part, mine.count);
        room.copy_(
            at::from_blob(const_cast<double*>(rows.values.data()) + (first + mine.first) * rows.columns,
                          {mine.count, rows.columns}, at::kDouble));
      }
      collector.end_round(part, last - first);
    }
  }

  template <class T>
  void add_round(Collector<T>& collector, const Activations (&z)[2][2], std::int64_t first,
                 std::int64_t last) const {
    const Range mine = dealt_tokens(last - first, comm_->size(), comm_->rank());
    for (const Part part : {Part::fit, Part::heldout}) {
      for (std::size_t s = 0; s < 2; ++s) {
        const Activations& rows = z[s][static_cast<std::size_t>(part)];
        const double* from = rows.values.data() + (first + mine.first) * rows.columns;
        std::transform(from, from + mine.count * rows.columns, collector.add_rows(s, part, mine.count),
                       [](double value) { return static_cast<T>(value); });
      }
      collector.end_round(part, last - first);
    }
  }

  at::Device device_ = at::kCPU;
  std::unique_ptr<DeviceComm> comm_;
};

INSTANTIATE_TEST_SUITE_P(On, DeviceGramList, testing::Values(at::kCPU, at::kCUDA),
                         [](const auto& info) { return info.param == at::kCPU ? "cpu" : "gpu"; });

// Rounds far smaller than a panel of 4096 tokens, and larger ones.
constexpr std::int64_t kRounds[] = {1, 0, 4093, 5, 3000, 1500, 7};
constexpr std::int64_t kTokens = 8606;

/// Values about means of about `mean`, of which `type` keeps every bit.
Activations make_values(std::int64_t columns, std::uint64_t seed, double mean, at::ScalarType type) {
  Activations z = correlated(kTokens, columns, 3, 0.5, 7, seed);
  for (double& value : z.values) value += mean;
  at::Tensor values = at::from_blob(z.values.data(), {kTokens, columns}, at::kDouble);
  values.copy_(values.to(type));
  return z;
}

TEST_P(DeviceGramList, AgreesWithTheHostAndWithPlainSums) {
  for (const at::ScalarType type : {at::kDouble, at::kBFloat16}) {
    const Activations z[2][2] = {{make_values(30, 1, 0, type), make_values(30, 2, 0, type)},
                                 {make_values(7, 3, 0, type), make_values(7, 4, 0, type)}};
    const Reference plain[2][2] = {{Reference(z[0][0]), Reference(z[0][1])},
                                   {Reference(z[1][0]), Reference(z[1][1])}};
    on_all_grids([&](const Grid& grid) {
      for (const Precision precision : kPrecisions) {
        SCOPED_TRACE(name_of(precision));
        const auto compare = [&](auto zero) {
          Collector<decltype(zero)> host(grid, {columns_, blocks_, precision, true});
          auto collector = on_device<decltype(zero)>(grid, precision, type);
          std::int64_t first = 0;
          for (const std::int64_t round : kRounds) {
            add_round(host, z, first, first + round);
            add_round(collector, z, first, first + round);
            first += round;
          }
          const std::vector<StreamGrams> expected = host.finish(), grams = collector.finish();
          ASSERT_EQ(grams.size(), 2u);
          for (std::size_t s = 0; s < 2; ++s)
            for (std::size_t part = 0; part < 2; ++part) {
              const HeadGram& gram = part == 0 ? grams[s].fit : *grams[s].heldout;
              const HeadGram& same = part == 0 ? expected[s].fit : *expected[s].heldout;
              const double sums = sums_error(precision, device_);
              expect_gram(gram, kTokens, same.mean, gather_symmetric(same.matrix),
                          multiply_alike(precision, device_) ? 0 : rounding_error(precision, at::kCPU), sums);
              expect_gram(gram, kTokens, plain[s][part].mean, plain[s][part].gram,
                          rounding_error(precision, device_), sums);
            }
        };
        type == at::kDouble ? compare(0.0) : compare(0.0F);
      }
    });
  }
}

// Unshifted, FP32 would leave nothing of a variance of 1 beside a mean of 1e4: 1e8 * 2^-24 = 6.
TEST_P(DeviceGramList, LosesNothingToLargeMeans) {
  const Activations z[2][2] = {{make_values(30, 1, 1e4, at::kDouble), make_values(30, 2, 1e4, at::kDouble)},
                               {make_values(7, 3, 1e4, at::kDouble), make_values(7, 4, 1e4, at::kDouble)}};
  const Reference plain(z[0][0]);
  const Comm world = Comm::duplicate(MPI_COMM_WORLD);
  const ProcessGrid shape = usual_grid(world.size());
  const Grid grid(world, shape.rows, shape.columns);
  for (const Precision precision : kPrecisions) {
    SCOPED_TRACE(name_of(precision));
    auto collector = on_device<double>(grid, precision, at::kDouble);
    std::int64_t first = 0;
    for (const std::int64_t round : kRounds) {
      add_round(collector, z, first, first + round);
      first += round;
    }
    // z - shift is rounded to a multiple of 2^-53 * 1e4, beside a deviation of 1.
    expect_gram(collector.finish()[0].fit, kTokens, plain.mean, plain.gram,
                rounding_error(precision, device_) + 2e4 * 0x1p-53, sums_error(precision, device_));
  }
}

// A saved state goes through a Collector on the host: here at every point between rounds. Two runs of the
// same have the same bits.
TEST_P(DeviceGramList, GoesOnFromASavedStateToTheBit) {
  const Activations z[2][2] = {{make_values(30, 1, 1, at::kBFloat16), make_values(30, 2, 1, at::kBFloat16)},
                               {make_values(7, 3, 1, at::kBFloat16), make_values(7, 4, 1, at::kBFloat16)}};
  on_all_grids([&](const Grid& grid) {
    for (const Precision precision : {Precision::float64, Precision::bfloat16}) {
      SCOPED_TRACE(name_of(precision));
      auto whole = on_device<float>(grid, precision, at::kBFloat16);
      auto before =
          std::make_unique<DeviceCollector<float>>(on_device<float>(grid, precision, at::kBFloat16));
      std::int64_t first = 0;
      for (const std::int64_t round : kRounds) {
        add_round(whole, z, first, first + round);
        add_round(*before, z, first, first + round);
        auto after = std::make_unique<DeviceCollector<float>>(
            grid, *comm_, GramSpec{columns_, blocks_, precision, true}, device_, at::kBFloat16, 5);
        copy_state(before->copy_to_host(), after->copy_to_host());
        after->start_share(kEverything);
        after->upload();
        before = std::move(after);
        first += round;
      }
      expect_same_bits(whole.finish(), before->finish());
    }
  });
}

// Part by part, stream by stream, slice by slice: the same panels, about the same provisional means, so the
// same bits. A slice may be empty: on many ranks there are fewer stripes than slices.
TEST_P(DeviceGramList, InSeveralPassesGivesTheSameBits) {
  const Activations z[2][2] = {{make_values(30, 1, 1, at::kBFloat16), make_values(30, 2, 1, at::kBFloat16)},
                               {make_values(7, 3, 1, at::kBFloat16), make_values(7, 4, 1, at::kBFloat16)}};
  const std::vector<DeviceShare> shares{{{0}, {Part::fit}, {0, 3}},        {{0}, {Part::fit}, {1, 3}},
                                        {{0}, {Part::fit}, {2, 3}},        {{1}, {Part::fit}, {}},
                                        {{0, 1}, {Part::heldout}, {0, 2}}, {{0, 1}, {Part::heldout}, {1, 2}}};
  on_all_grids([&](const Grid& grid) {
    for (const Precision precision : {Precision::float64, Precision::bfloat16}) {
      SCOPED_TRACE(name_of(precision));
      auto whole = on_device<float>(grid, precision, at::kBFloat16);
      DeviceCollector<float> sliced(grid, *comm_, {columns_, blocks_, precision, true}, device_,
                                    at::kBFloat16, 5);
      const auto run = [&](DeviceCollector<float>& collector, const DeviceShare& share) {
        std::int64_t first = 0;
        for (const std::int64_t round : kRounds) {
          add_round(collector, z, first, first + round, share);
          first += round;
        }
      };
      run(whole, kEverything);
      for (const DeviceShare& share : shares) {
        sliced.start_share(share);
        run(sliced, share);
      }
      expect_same_bits(whole.finish(), sliced.finish());
    }
  });
}

TEST_P(DeviceGramList, OfNoRowsIsEmpty) {
  const Comm world = Comm::duplicate(MPI_COMM_WORLD);
  const ProcessGrid shape = usual_grid(world.size());
  const Grid grid(world, shape.rows, shape.columns);

  const std::vector<StreamGrams> grams = on_device<float>(grid, Precision::float32, at::kHalf).finish();

  ASSERT_EQ(grams.size(), 2u);
  EXPECT_EQ(grams[0].fit.tokens, 0);
  EXPECT_EQ(grams[0].heldout->tokens, 0);
}

TEST(DeviceGram, IsNoLargerThanSaid) {
  const Comm world = Comm::duplicate(MPI_COMM_WORLD);
  for (const std::int64_t slices : {1, 2, 5})
    on_all_grids([&](const Grid& grid) {
      std::int64_t largest = 0, all = 0;
      for (std::int64_t slice = 0; slice < slices; ++slice) {
        const std::int64_t elements = DeviceGram(grid, 2050, 3, at::kCPU, 0, {slice, slices}).elements();
        largest = std::max(largest, elements);
        all += elements;
      }
      EXPECT_EQ(world.max(largest), most_elements(grid.shape(), 2050, 3, slices));
      EXPECT_EQ(all, DeviceGram(grid, 2050, 3, at::kCPU).elements());
    });
  // On one rank: half of the square, and in each stripe of 256 columns a triangle above the diagonal.
  EXPECT_EQ(most_elements({1, 1}, 2048, 2, 1), 2048 * 2048 / 2 + 2048 * 256 / 2);
  EXPECT_EQ(most_elements({1, 1}, 2048, 2, 2), 256 * (2048 + 1792 + 1536));
}

TEST(DeviceGram, HasStripesThatSuitItsSize) {
  EXPECT_EQ(stripe_width(60, 60), 256);          // no less
  EXPECT_EQ(stripe_width(16384, 16384), 1024);   // a sixteenth: 3 % above the diagonal
  EXPECT_EQ(stripe_width(32768, 32768), 2048);   // 256 MiB in FP32
  EXPECT_EQ(stripe_width(131072, 131072), 512);  // 256 MiB in FP32
  EXPECT_EQ(stripe_width(0, 0), 256);
}

}  // namespace
}  // namespace headspan
