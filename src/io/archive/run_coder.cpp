#include "io/archive/run_coder.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <zlib.h>

#include "base/checked.h"
#include "base/error.h"
#include "io/archive/element_type.h"

namespace headspan {
namespace {

constexpr std::int64_t kScaleBytes = 4;  // of a token and run: the least number and the step, float16

/// The numbers that the codes of a run stand for in one token: least + code * step.
struct RunScale {
  std::array<float, 2> least_and_step;

  RunScale(const float* first, std::int64_t count, int bits) {
    const auto [least, most] = std::minmax_element(first, first + count);
    const float levels = static_cast<float>((1 << bits) - 1);
    least_and_step = {*least, (*most - *least) / levels};
    std::array<std::uint8_t, kScaleBytes> stored;
    narrow(ElementType::float16, least_and_step.data(), 2, stored.data());
    widen(ElementType::float16, stored.data(), 2, least_and_step.data());
    for (float& number : least_and_step) number = std::clamp(number, -65504.0F, 65504.0F);
  }
  explicit RunScale(const std::uint8_t* stored) : least_and_step{} {
    widen(ElementType::float16, stored, 2, least_and_step.data());
  }

  int code(float x, int bits) const {
    const float step = least_and_step[1];
    if (!(step > 0)) return 0;
    return static_cast<int>(
        std::clamp(std::round((x - least_and_step[0]) / step), 0.0F, static_cast<float>((1 << bits) - 1)));
  }
  float value(int code) const { return least_and_step[0] + static_cast<float>(code) * least_and_step[1]; }
};

/// Bytes of the codes of one coefficient.
std::int64_t code_bytes(std::int64_t tokens, int bits) { return (tokens * bits + 7) / 8; }

/// Bytes of a block before DEFLATE.
std::int64_t plain_bytes(const std::vector<CodedRun>& runs, std::int64_t tokens) {
  std::int64_t bytes = 0;
  for (const CodedRun& run : runs) bytes += kScaleBytes * tokens + run.count * code_bytes(tokens, run.bits);
  return bytes;
}

}  // namespace

double round_run(int bits, std::int64_t count, float* coefficients) {
  const RunScale scale(coefficients, count, bits);
  double squares = 0;
  for (float* x = coefficients; x < coefficients + count; ++x) {
    const float rounded = scale.value(scale.code(*x, bits));
    squares += std::pow(static_cast<double>(rounded) - static_cast<double>(*x), 2);
    *x = rounded;
  }
  return squares;
}

std::vector<std::uint8_t> encode_runs(const std::vector<CodedRun>& runs, const float* coefficients,
                                      std::int64_t tokens, std::int64_t columns) {
  std::vector<std::uint8_t> plain(to_size(plain_bytes(runs, tokens)));
  std::uint8_t* to = plain.data();
  std::int64_t first = 0;
  for (const CodedRun& run : runs) {
    const std::int64_t of_column = code_bytes(tokens, run.bits);
    std::uint8_t* const codes = to + kScaleBytes * tokens;
    for (std::int64_t t = 0; t < tokens; ++t) {
      const float* const of_token = coefficients + t * columns + first;
      const RunScale scale(of_token, run.count, run.bits);
      narrow(ElementType::float16, scale.least_and_step.data(), 2, to + kScaleBytes * t);
      for (std::int64_t j = 0; j < run.count; ++j)
        codes[j * of_column + t * run.bits / 8] |=
            static_cast<std::uint8_t>(scale.code(of_token[j], run.bits) << t * run.bits % 8);
    }
    to = codes + run.count * of_column;
    first += run.count;
  }
  std::vector<std::uint8_t> packed(compressBound(plain.size()));
  uLongf size = packed.size();
  HS_ASSERT(compress2(packed.data(), &size, plain.data(), plain.size(), Z_BEST_COMPRESSION) == Z_OK);
  packed.resize(size);
  return packed;
}

void decode_runs(const std::vector<CodedRun>& runs, const std::uint8_t* bytes, std::int64_t size,
                 std::int64_t tokens, std::int64_t columns, float* coefficients) {
  std::vector<std::uint8_t> plain(to_size(plain_bytes(runs, tokens)));
  uLongf found = plain.size();
  if (uncompress(plain.data(), &found, bytes, static_cast<uLong>(size)) != Z_OK || found != plain.size())
    throw InputError("", "block", "", "is damaged");
  std::fill_n(coefficients, tokens * columns, 0.0F);
  const std::uint8_t* from = plain.data();
  std::int64_t first = 0;
  for (const CodedRun& run : runs) {
    const std::int64_t of_column = code_bytes(tokens, run.bits);
    const std::uint8_t* const codes = from + kScaleBytes * tokens;
    for (std::int64_t t = 0; t < tokens; ++t) {
      const RunScale scale(from + kScaleBytes * t);
      for (std::int64_t j = 0; j < run.count; ++j)
        coefficients[t * columns + first + j] =
            scale.value(codes[j * of_column + t * run.bits / 8] >> t * run.bits % 8 & ((1 << run.bits) - 1));
    }
    from = codes + run.count * of_column;
    first += run.count;
  }
}

}  // namespace headspan
