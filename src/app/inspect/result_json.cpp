#include "app/inspect/result_json.h"

#include <cmath>

namespace headspan {
namespace {

Values known(std::int64_t value, std::int64_t unknown) { return value == unknown ? Values() : Values(value); }

Values known(double value) { return std::isnan(value) ? Values() : Values(value); }

Values to_json(const PairFigures& figures) {
  return {{"mean_best", known(figures.mean_best)},
          {"median_best", known(figures.median_best)},
          {"mean_best_heldout", known(figures.mean_best_heldout)},
          {"median_best_heldout", known(figures.median_best_heldout)},
          {"mean_pair", known(figures.mean_pair)},
          {"share_above_tenth", known(figures.share_above_tenth)},
          {"share_above_half", known(figures.share_above_half)}};
}

Values to_json(const StreamSummary& stream) {
  return {{"layers", stream.layers},
          {"heads", stream.heads},
          {"head_size", stream.head_size},
          {"hidden_size", known(stream.hidden_size, 0)},
          {"n_fit", stream.n_fit},
          {"n_heldout", stream.n_heldout},
          {"capture", stream.capture},
          {"found", to_json(stream.found)},
          {"null", to_json(stream.null)},
          {"adjusted_best", known(stream.adjusted_best)},
          {"effective_rank", known(stream.effective_rank)},
          {"flagged", stream.flagged},
          {"noise_floor", known(stream.noise_floor)},
          {"geometric_null", known(stream.geometric_null)}};
}

}  // namespace

Values to_json(const ResultSummary& result) {
  Values all{{"path", result.path},
             {"kind", "result"},
             {"schema", result.schema},
             {"model_name", result.model_name},
             {"model_type", result.model_type},
             {"checkpoint", result.checkpoint},
             {"random", result.random},
             {"step", known(result.step, -1)},
             {"training_tokens", known(result.training_tokens, -1)},
             {"mode", result.mode},
             {"tokens_path", result.tokens_path},
             {"source", result.source},
             {"date_created", result.date_created},
             {"streams", Values::object()}};
  for (const StreamSummary& stream : result.streams) all["streams"][stream.name] = to_json(stream);
  if (!result.reference.empty()) all["reference"] = result.reference;
  for (const CrossSummary& cross : result.cross)
    all["cross"][cross.name] = {{"sources", cross.sources},
                                {"targets", cross.targets},
                                {"mean_best", known(cross.mean_best)},
                                {"mean_best_heldout", known(cross.mean_best_heldout)},
                                {"mean_layer_heldout", known(cross.mean_layer_heldout)}};
  return all;
}

}  // namespace headspan
