#include "app/compress/model_calibration.h"

#include "app/capture/capture.h"
#include "app/job/job_rules.h"
#include "app/sources/value_range.h"
#include "base/progress.h"

namespace headspan {
namespace {

/// Returns the heads of part i of a stream that is cut into `parts` equal parts.
HeadLayout part_of(const HeadLayout& layout, std::size_t i, std::size_t parts) {
  const auto heads = static_cast<std::ptrdiff_t>(layout.layer.size() / parts),
             first = static_cast<std::ptrdiff_t>(i) * heads;
  return {layout.head_size,
          {layout.layer.begin() + first, layout.layer.begin() + first + heads},
          {layout.head.begin() + first, layout.head.begin() + first + heads},
          layout.hidden_size};
}

}  // namespace

Calibration calibration_of_model(const CalibrationInput& given, CaptureRequest request,
                                 const Transformer& model, const ProcessLayout& processes, const Log& log,
                                 Profile& profile) {
  const ModelInput& input = given.input;
  request.streams = {Stream::k, Stream::v};
  AttentionSums sums(input.config.layers, input.config.heads, input.config.kv_heads, input.config.head_size);
  request.attention = &sums;
  Progress progress(log, "forward", "tokens", given.sample.total());
  const auto run = [&](auto zero) {
    return capture_grams<decltype(zero)>(model, given.sample, request, processes, progress, profile);
  };
  std::vector<StreamGrams> grams = input.dtype == Dtype::float64 ? run(0.0) : run(0.0F);
  Calibration calibration{input.config,
                          stream_layout(input.config, Stream::k),
                          fit_rules(given.mode, input.dtype, Precision::float64),
                          finish_attention(sums, model, processes, grams[0].fit.tokens),
                          {},
                          {}};
  const std::size_t of_stream = grams.size() / request.streams.size();
  for (std::size_t i = 0; i < grams.size(); ++i) {
    const Stream stream = request.streams[i / of_stream];
    StreamEvidence evidence;
    evidence.origin = {stream, request.point, input.dtype, Precision::float64, 0};
    evidence.layout = part_of(calibration.layout, i % of_stream, of_stream);
    evidence.rules = calibration.rules;
    evidence.grams = std::move(grams[i]);
    check_value_range(given.model_path, evidence);
    if (request.by_layer)
      calibration.layer_grams[stream].push_back(std::move(evidence.grams->fit));
    else
      calibration.grams.emplace(stream, std::move(*evidence.grams));
  }
  const AttentionMoments& moments = calibration.moments;
  check_attention_range(given.model_path, input.dtype, moments.heads, moments.scale, moments.query,
                        processes.group());
  return calibration;
}

}  // namespace headspan
