// The forward pass against golden files of transformers, on every way to lay out the ranks.
#include <map>

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>
#include <torch/version.h>

#include "base/range.h"
#include "model/forward/attention.h"
#include "model/golden.h"
#include "model/types/read_config.h"
#include "model/weights/weight_loader.h"

namespace headspan {
namespace {

constexpr bool kSideBySide = TORCH_VERSION_MAJOR > 2 ||
                             (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 5);

const std::map<CapturePoint, std::string> kPoints{
    {CapturePoint::proj, "proj"}, {CapturePoint::normed, "normed"}, {CapturePoint::roped, "roped"}};
const std::map<Stream, std::string> kStreams{
    {Stream::k, "k"}, {Stream::q, "q"}, {Stream::v, "v"}, {Stream::z, "z"}};

const std::vector<Stream> kProjected{Stream::v, Stream::k, Stream::q};

/// The golden tensor of a capture; where a model has no such step, the value before it.
std::string golden_name(const ModelConfig& config, CapturePoint point, Stream stream, std::int64_t layer) {
  if (point == CapturePoint::roped && !config.rotates_in(layer)) point = CapturePoint::normed;
  if (stream == Stream::z) return "z." + std::to_string(layer);
  const bool plain = stream == Stream::v || (point == CapturePoint::normed && config.qk_norm == QkNorm::none);
  return kStreams.at(stream) + "." + (plain ? "proj" : kPoints.at(point)) + "." + std::to_string(layer);
}

/// The captured values as a tensor of the shape of `other`.
template <class T>
at::Tensor tensor_like(const at::Tensor& other, const T* values) {
  return at::from_blob(const_cast<T*>(values), other.sizes(), at::CppTypeToScalarType<T>::value);
}

/// How many roundings of half precision one error may stand for, more than a product's. Rotated values are
/// sums of two products, of two coordinates of which each may be rounded differently. z is weighted by
/// exponentials of scores, which are as wrong as the scores are large.
double roundings(CapturePoint point, Stream stream) {
  if (stream == Stream::z) return 4;
  return point == CapturePoint::roped && stream != Stream::v ? 2 : 1;
}

class TransformerGolden : public testing::TestWithParam<std::string> {
 protected:
  const std::string folder_ = golden_folder(GetParam());
  const ModelConfig config_ = read_model_config(folder_ + "/config.json");
  const Checkpoint checkpoint_ = Checkpoint::open(folder_);

  /// Largest relative error of all captures in `dtype`, against those that the golden file has in
  /// `in_golden`; relative to the largest value of all ranks, so that as much is asked of every layout. In
  /// half precision divided by roundings().
  template <class T>
  double capture_error(const Layout& layout, const std::string& dtype, std::int64_t first,
                       std::int64_t layers, const std::string& in_golden) {
    const Golden golden(GetParam(), layout.data_parallel.rank(), layout.data_parallel.size());
    const Golden all(GetParam(), 0, 1);
    const auto model =
        Transformer::load(config_, checkpoint_, {*value_of(dtype_words(), dtype), {layers, false}},
                          layout.tensor_parallel, layout.data_parallel);
    const bool is_half = dtype == "bfloat16" || dtype == "float16";
    double worst = 0;
    std::int64_t seen = 0;
    const auto compare = [&](CapturePoint point, std::int64_t layer, Stream stream, const T* values) {
      if (layer < first) return;
      const Range heads = model.heads(stream);
      const std::string name = in_golden + "/" + golden_name(config_, point, stream, layer);
      const at::Tensor expected = golden[name].narrow(1, heads.first, heads.count);
      const double error = relative_error(tensor_like(expected, values), expected, all[name]);
      worst = std::max(worst, error / (is_half ? roundings(point, stream) : 1));
      ++seen;
    };
    for (const auto& [point, name] : kPoints)
      for (const std::vector<Stream>& streams : {kProjected, {Stream::z}})
        model.capture<T>(golden.batch, point, streams,
                         [&, point = point](std::int64_t layer, Stream stream, const T* values) {
                           compare(point, layer, stream, values);
                         });
    EXPECT_EQ(seen, 12 * (layers - first));
    return worst;
  }

  double logits_error(const Layout& layout, const std::string& dtype) {
    const Golden golden(GetParam(), layout.data_parallel.rank(), layout.data_parallel.size());
    const auto model =
        Transformer::load(config_, checkpoint_, {*value_of(dtype_words(), dtype), {config_.layers, true}},
                          layout.tensor_parallel, layout.data_parallel);
    const at::Tensor logits = model.logits(golden.batch), expected = golden[dtype + "/logits"];
    EXPECT_EQ(logits.scalar_type(), expected.scalar_type());
    return relative_error(logits, expected);
  }
};

TEST_P(TransformerGolden, agrees_in_float64_on_every_layout) {
  for (const int size : {1, 2, 4}) {
    const Layout world(1);
    if (world.world.size() % size != 0 || config_.kv_heads % size != 0) continue;
    const Layout layout(size);

    const double captures = capture_error<double>(layout, "float64", 0, 2, "float64");
    const double logits = logits_error(layout, "float64");

    EXPECT_LE(captures, 1e-12) << "tensor parallel " << size;
    EXPECT_LE(logits, 1e-12) << "tensor parallel " << size;
  }
}

// The same sequences many times over: more rows than ranks sum at once, cut somewhere in a sequence.
TEST_P(TransformerGolden, agrees_where_rows_go_in_pieces) {
  if (Layout(1).world.size() % 2 != 0 || config_.kv_heads % 2 != 0)
    GTEST_SKIP() << "no two ranks can share the heads";
  for (const int size : {2, 4}) {
    const Layout world(1);
    if (world.world.size() % size != 0 || config_.kv_heads % size != 0) continue;
    const Layout layout(size);
    const Golden golden(GetParam(), layout.data_parallel.rank(), layout.data_parallel.size());
    const auto tokens = static_cast<std::int64_t>(golden.batch.tokens.size());
    const std::int64_t copies = (1 << 17) / (config_.hidden_size * tokens) + 2;
    PackedBatch batch;
    for (std::int64_t i = 0; i < copies; ++i) {
      batch.tokens.insert(batch.tokens.end(), golden.batch.tokens.begin(), golden.batch.tokens.end());
      batch.lengths.insert(batch.lengths.end(), golden.batch.lengths.begin(), golden.batch.lengths.end());
    }
    const auto model = Transformer::load(config_, checkpoint_, {Dtype::float64, {config_.layers, true}},
                                         layout.tensor_parallel, layout.data_parallel);

    const at::Tensor logits = model.logits(batch);

    EXPECT_LE(relative_error(logits, golden["float64/logits"].repeat({copies, 1})), 1e-12) << size;
  }
}

TEST_P(TransformerGolden, agrees_in_float32) {
  const Layout layout(1);

  const double captures = capture_error<float>(layout, "float32", 1, 2, "float32");
  const double logits = logits_error(layout, "float32");

  EXPECT_LE(captures, 1e-5);
  EXPECT_LE(logits, 1e-5);
}

TEST_P(TransformerGolden, agrees_in_bfloat16_where_only_products_may_round_differently) {
  const Layout layout(1);

  EXPECT_LE(capture_error<float>(layout, "bfloat16", 0, 1, "bfloat16"),
            1.0 / 128);  // one unit in the last place of the largest
}

TEST_P(TransformerGolden, float16_is_float32_up_to_its_rounding) {
  const Layout layout(1);

  // In transformers the two differ by up to 3.8 units (gemma3); libraries sum products in other orders.
  EXPECT_LE(capture_error<float>(layout, "float16", 1, 2, "float32"), 5.0 / 1024);
}

INSTANTIATE_TEST_SUITE_P(Models, TransformerGolden, golden_models(),
                         [](const auto& info) { return info.param; });

TEST(Transformer, llama3_scaling_is_exercised_by_its_golden_file) {
  const Layout layout(1);
  ModelConfig config = read_model_config(golden_folder("llama3_scaled") + "/config.json");
  const Checkpoint checkpoint = Checkpoint::open(golden_folder("llama3_scaled"));
  const Golden golden("llama3_scaled");
  config.rope.scaling = {};

  const auto unscaled = Transformer::load(config, checkpoint, {Dtype::float64, {1, false}},
                                          layout.tensor_parallel, layout.data_parallel);
  double error = 0;
  const at::Tensor scaled = golden["float64/k.roped.0"];
  unscaled.capture<double>(
      golden.batch, CapturePoint::roped, {Stream::k},
      [&](std::int64_t, Stream, const double* k) { error = relative_error(tensor_like(scaled, k), scaled); });

  EXPECT_GT(error, 1e-2);
}

TEST(Transformer, hands_out_only_the_streams_asked_for_layers_ascending) {
  const Layout layout(1);
  const ModelConfig config = read_model_config(golden_folder("qwen3") + "/config.json");
  const auto model = Transformer::random(config, 0, {Dtype::float32, {2, false}}, layout.tensor_parallel);
  std::vector<std::pair<std::int64_t, Stream>> order;

  model.capture<float>(
      {{3, 4, 5}, {2, 1}}, CapturePoint::roped, {Stream::k},
      [&](std::int64_t layer, Stream stream, const float*) { order.emplace_back(layer, stream); });
  model.capture<float>(
      {}, CapturePoint::roped, {Stream::k},
      [&](std::int64_t layer, Stream stream, const float*) { order.emplace_back(layer, stream); });

  EXPECT_EQ(order, (std::vector<std::pair<std::int64_t, Stream>>{{0, Stream::k}, {1, Stream::k}}));
}

TEST(Attention, sequences_side_by_side_are_those_one_by_one) {
  if (!kSideBySide) GTEST_SKIP() << "LibTorch is older than 2.5";
  const c10::InferenceMode inference;
  const std::vector<std::int64_t> lengths{7, 7, 3, 5, 5, 5};
  for (const auto& [dtype, tolerance] :
       {std::pair(at::kDouble, 1e-12), {at::kFloat, 1e-5}, {at::kBFloat16, 2e-2}})
    for (const std::int64_t kv_heads : {2, 6}) {
      const auto draw = [&, dtype = dtype](std::int64_t heads) {
        return at::randn({32, heads, 8}, at::kDouble).to(dtype);
      };
      const at::Tensor q = draw(6), k = draw(kv_heads), v = draw(kv_heads);
      EXPECT_LT(relative_error(side_by_side_attention(q, k, v, lengths), blocked_attention(q, k, v, lengths)),
                tolerance)
          << dtype << " " << kv_heads;
    }
  // As long as float64 takes a few heads at a time.
  const at::Tensor q = at::randn({2600, 6, 8}, at::kDouble), k = at::randn({2600, 3, 8}, at::kDouble);
  EXPECT_LT(relative_error(side_by_side_attention(q, k, k, {2600}), blocked_attention(q, k, k, {2600})),
            1e-12);
}

}  // namespace
}  // namespace headspan
