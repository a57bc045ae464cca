// Codes as a device writes and reads them against the host's records, byte for byte and number for number.
#include <cstring>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "model/cache/record_format.h"
#include "model/kernels/packed_codes.h"

namespace headspan {
namespace {

constexpr std::int64_t kRows = 37;

struct Case {
  Band band;
  at::ScalarType type;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (int bits = 1; bits <= 8; ++bits)
    for (const Coding coding : {Coding::symmetric, Coding::range, Coding::gguf})
      for (const std::int64_t columns : {1, 5, 7, 8, 13, 64})
        for (const at::ScalarType type : {at::kFloat, at::kDouble})
          for (const double clip : {1.0, 0.9})
            if (clip == 1 || coding == Coding::range) all.push_back({{columns, bits, coding, 1, clip}, type});
  return all;
}

std::string name_of(const Case& one) {
  return std::to_string(one.band.bits) + " bits, " + std::to_string(one.band.columns) + " columns, " +
         word_of(coding_words(), one.band.coding) + ", clipped to " + std::to_string(one.band.clip);
}

/// Rows of all magnitudes, one of zeros and one of a single number.
at::Tensor draw(const Case& one) {
  at::manual_seed(7);
  at::Tensor z = at::randn({kRows, one.band.columns}, at::kDouble) + 0.3;
  z.mul_(at::logspace(-6, 5.5, kRows, 10, at::kDouble).unsqueeze(1));
  z[3].fill_(0);
  z[4].fill_(-1.5);
  return z.to(one.type);
}

template <class T>
void expect_records(const Case& one) {
  const RecordFormat format({one.band}, Dtype::float64);
  const PackedCodes fields(one.band, at::kCPU);
  const at::Tensor z = draw(one);
  const auto records = static_cast<std::size_t>(kRows * format.bytes());
  std::vector<std::byte> expected(records + static_cast<std::size_t>(format.slack()));
  for (std::int64_t r = 0; r < kRows; ++r)
    format.pack(z.data_ptr<T>() + r * one.band.columns, expected.data() + r * format.bytes());
  const std::int64_t leading = RecordFormat::leading(one.band.columns);
  at::Tensor values = at::empty({kRows, leading}, one.type);
  format.unpack(expected.data(), kRows, 0, 0, one.band.columns, values.data_ptr<T>(), leading);

  const PackedRows packed = fields.pack(z);
  const CodeScales scales = fields.read_scales(packed.scales);
  const at::Tensor units = fields.on_fields(at::eye(one.band.columns, one.type).unsqueeze(0))[0];
  const at::Tensor codes = at::mm(fields.unpack(packed.bytes, one.type), units);
  const at::Tensor read =
      scales.base.to(one.type).unsqueeze(1) + codes * scales.step.to(one.type).unsqueeze(1);

  const at::Tensor record =
      at::cat({packed.scales.contiguous().view({-1}).view(at::kByte).view({kRows, -1}), packed.bytes}, 1);
  ASSERT_EQ(record.size(1), format.bytes()) << name_of(one);
  EXPECT_EQ(std::memcmp(record.contiguous().data_ptr(), expected.data(), records), 0) << name_of(one);
  constexpr double kRounding = 0x1p-22;  // of float32, in which the host adds base and step
  const at::Tensor host = values.narrow(1, 0, one.band.columns);
  EXPECT_TRUE(((read - host).abs().amax(1) <= kRounding * host.abs().amax(1)).all().item<bool>())
      << name_of(one);
}

TEST(PackedCodes, are_the_records_of_the_host) {
  for (const Case& one : cases())
    one.type == at::kDouble ? expect_records<double>(one) : expect_records<float>(one);
}

TEST(PackedCodes, take_scales_into_account_once_for_each_column) {
  for (const Case& one : cases()) {
    const PackedCodes fields(one.band, at::kCPU);
    const at::Tensor units = fields.on_fields(at::eye(one.band.columns, at::kDouble).unsqueeze(0))[0];

    EXPECT_TRUE(at::equal(at::mv(units.t(), fields.lowest()), at::ones({one.band.columns}, at::kDouble)))
        << name_of(one);
  }
}

TEST(PackedCodes, are_exact_in_bfloat16) {
  for (const Case& one : cases()) {
    const PackedCodes fields(one.band, at::kCPU);
    const at::Tensor bytes = fields.pack(draw(one)).bytes;

    EXPECT_TRUE(
        at::equal(fields.unpack(bytes, at::kBFloat16).to(at::kFloat), fields.unpack(bytes, at::kFloat)))
        << name_of(one);
  }
}

}  // namespace
}  // namespace headspan
