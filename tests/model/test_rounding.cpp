// Norm, rotation and attention on their own: every bit of half precision against transformers, and blocks of
// queries against the plain formula.
#include <limits>

#include <gtest/gtest.h>

#include "model/forward/attention.h"
#include "model/forward/norm.h"
#include "model/forward/rope.h"
#include "model/golden.h"
#include "model/kernels/row_kernels.h"

namespace headspan {
namespace {

struct Family {
  const char* name;
  bool round_once;
};
const Family kFamilies[] = {{"olmo2", true}, {"llama", false}};

TEST(Rounding, norm_in_bfloat16_has_the_bits_of_transformers) {
  const auto file = SafetensorsFile::open(golden_folder("rounding.safetensors"));
  for (const auto& [family, round_once] : kFamilies) {
    const at::Tensor normed = rms_norm(read_tensor(file, "x"), read_tensor(file, "gain"), 1e-5, round_once);

    EXPECT_TRUE(at::equal(normed, read_tensor(file, std::string(family) + "/normed"))) << family;
  }
  EXPECT_FALSE(at::equal(read_tensor(file, "olmo2/normed"), read_tensor(file, "llama/normed")));
}

TEST(Rounding, rotation_in_bfloat16_has_the_bits_of_transformers) {
  const auto file = SafetensorsFile::open(golden_folder("rounding.safetensors"));
  for (const auto& [family, round_once] : kFamilies) {
    RopeRule rule;
    rule.theta = 10000;
    rule.round_once = round_once;

    const at::Tensor roped =
        rotate(read_tensor(file, "heads"), make_rope_table(rule, 32, {{0}, {64}}, at::kBFloat16));

    EXPECT_TRUE(at::equal(roped, read_tensor(file, std::string(family) + "/roped"))) << family;
  }
}

/// softmax(q k^T / sqrt(d) + mask) v of one sequence, [length, heads, d], as the formula stands.
at::Tensor plain_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           const AttentionRule& rule) {
  const std::int64_t length = q.size(0), group = q.size(1) / k.size(1);
  const auto by_head = [&](const at::Tensor& x, std::int64_t repeats) {
    return x.repeat_interleave(repeats, 1).transpose(0, 1);
  };
  at::Tensor scores = at::matmul(by_head(q, 1), by_head(k, group).transpose(1, 2)) / std::sqrt(q.size(2));
  if (rule.softcap > 0) scores = rule.softcap * at::tanh(scores / rule.softcap);
  at::Tensor future = at::ones({length, length}, at::kBool).triu(1);
  if (rule.window > 0) future = future.logical_or(at::ones({length, length}, at::kBool).tril(-rule.window));
  const at::Tensor weights = at::softmax(scores.masked_fill(future, -INFINITY), -1);
  return at::matmul(weights, by_head(v, group)).transpose(0, 1);
}

TEST(Attention, blocks_and_fused_agree_with_the_formula) {
  at::manual_seed(0);
  const std::vector<std::int64_t> lengths{127, 1, 128, 129, 300};
  const auto draw = [](std::int64_t heads) { return at::randn({685, heads, 8}, at::kDouble); };
  const at::Tensor q = draw(6), k = draw(2), v = draw(2);
  for (const AttentionRule& rule : {AttentionRule{}, {1, 0}, {100, 0}, {128, 0.5}, {0, 2}}) {
    std::vector<at::Tensor> parts;
    std::int64_t begin = 0;
    for (const std::int64_t length : lengths) {
      parts.push_back(plain_attention(q.narrow(0, begin, length), k.narrow(0, begin, length),
                                      v.narrow(0, begin, length), rule));
      begin += length;
    }
    const at::Tensor expected = at::cat(parts);

    EXPECT_LE(relative_error(blocked_attention(q, k, v, lengths, rule), expected), 1e-13) << rule.window;
    EXPECT_LE(relative_error(causal_attention(q, k, v, lengths, rule), expected), 1e-13) << rule.window;
    EXPECT_LE(relative_error(masked_attention(q, k, v, lengths, rule), expected), 1e-13) << rule.window;
  }
}

TEST(Attention, half_precision_is_computed_in_float32) {
  at::manual_seed(0);
  const at::Tensor x = at::randn({40, 2, 8}, at::kFloat).to(at::kBFloat16);

  const at::Tensor half = blocked_attention(x, x, x, {40});
  const at::Tensor wide = blocked_attention(x.to(at::kFloat), x.to(at::kFloat), x.to(at::kFloat), {40});

  EXPECT_TRUE(at::equal(half, wide.to(at::kBFloat16)));
}

TEST(RowKernels, silu_and_softmax_agree_with_float64) {
  const at::Tensor x = at::linspace(-90, 90, 4001, at::kDouble).to(at::kFloat).clone(),
                   wide = x.to(at::kDouble);
  at::Tensor gate = x.clone(), scores = x.clone();
  const at::Tensor up = at::full_like(x, 3);

  silu_times(gate.data_ptr<float>(), up.data_ptr<float>(), x.numel());
  const float log_sum = softmax_row(scores.data_ptr<float>(), x.numel());

  const at::Tensor gated = 3 * wide / (1 + (-wide).exp()), shares = at::softmax(wide, 0);
  EXPECT_TRUE(at::allclose(gate.to(at::kDouble), gated, 1e-6, 1e-25));
  EXPECT_TRUE(at::allclose(scores.to(at::kDouble), shares, 1e-6, 1e-27));
  EXPECT_NEAR(log_sum, at::logsumexp(wide, 0).item<double>(), 1e-5);
  EXPECT_EQ(softmax_row(scores.data_ptr<float>(), 0), -std::numeric_limits<float>::infinity());
}

}  // namespace
}  // namespace headspan
