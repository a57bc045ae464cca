#include "io/archive/group_coder.h"

#include <algorithm>
#include <cmath>

#include "base/checked.h"

namespace headspan {

GroupCoder::GroupCoder(const KvCodec& codec, const CodecGroup& group, const LevelCoder& levels)
    : group_(group),
      levels_(levels),
      columns_(codec.columns(group)),
      coefficients_(group.coefficients()),
      lowest_deviation_(codec.lowest_deviation),
      models_(static_cast<std::int64_t>(codec.models.size())),
      analysis_(codec, group, has_byte_products() && group.runs.empty()),
      synthesis_(codec, group, has_byte_products() && group.runs.empty()) {}

GroupCoder::Levels GroupCoder::levels_of(int step) const {
  const auto model_of = [&](std::int64_t c, std::int64_t j) {
    const std::int64_t model =
        std::int64_t{group_.deviations[to_size(c * coefficients_ + j)]} - step - lowest_deviation_;
    return model < 0 ? kNoModel : static_cast<int>(std::min(model, models_ - 1));
  };
  Levels levels;
  for (std::int64_t j = coefficients_; levels.count == 0 && j > 0; --j)
    for (int c = 0; c < kTokenClasses; ++c)
      if (model_of(c, j - 1) != kNoModel) levels.count = j;
  for (int c = 0; c < kTokenClasses; ++c)
    for (std::int64_t j = 0; j < levels.count; ++j) levels.models.push_back(model_of(c, j));
  return levels;
}

const std::vector<CodedRun>& GroupCoder::runs_of(int step) const {
  if (step < 0 || step >= static_cast<int>(group_.runs.size()))
    throw InputError("", "step", std::to_string(step), "is none of the codec's");
  return group_.runs[to_size(step)];
}

std::int64_t GroupCoder::weighted() const {
  std::int64_t count = coefficients_;
  while (count > 0 && group_.class_weights[to_size(count - 1)] == 0) --count;
  return count;
}

float GroupCoder::energy(const float* coefficients) const {
  const std::int64_t count = weighted();
  float sum = 0;
  for (std::int64_t j = 0; j < count; ++j)
    sum += group_.class_weights[to_size(j)] * coefficients[j] * coefficients[j];
  return sum;
}

std::uint8_t GroupCoder::class_of(const float* coefficients) const {
  const auto& edges = group_.class_edges;
  return static_cast<std::uint8_t>(std::upper_bound(edges.begin(), edges.end(), energy(coefficients)) -
                                   edges.begin());
}

std::vector<std::uint8_t> GroupCoder::encode(const float* x, std::int64_t tokens, int step) const {
  HS_ASSERT(tokens >= 1 && tokens <= kBlockTokens);
  if (!group_.runs.empty())
    return encode_runs(runs_of(step), coefficients(x, tokens).data(), tokens, coefficients_);
  const Levels levels = levels_of(step);
  const std::int64_t count = std::max(levels.count, weighted());
  const std::vector<float> found =
      analysis_.rounded(x, tokens, count, std::exp2(static_cast<float>(step) / kPerOctave));
  LevelBlock block{{}, levels.count, levels.models.data()};
  const float per_step = std::exp2(-static_cast<float>(step) / kPerOctave);
  std::vector<float> in_steps(to_size(tokens * levels.count));
  for (std::int64_t token = 0; token < tokens; ++token) {
    const float* const of_token = found.data() + token * count;
    block.classes.push_back(class_of(of_token));
    for (std::int64_t j = 0; j < levels.count; ++j)
      in_steps[to_size(token * levels.count + j)] = of_token[j] * per_step;
  }
  return levels_.encode(block, in_steps.data());
}

void GroupCoder::decode(const std::uint8_t* bytes, std::int64_t size, std::int64_t tokens, int step,
                        float* x) const {
  std::int64_t count = coefficients_;
  std::vector<float> coefficients;
  float of_step = 0;
  if (group_.runs.empty()) {
    const Levels levels = levels_of(step);
    count = levels.count;
    LevelBlock block{std::vector<std::uint8_t>(to_size(tokens)), count, levels.models.data()};
    coefficients.resize(to_size(tokens * count));
    levels_.decode(bytes, size, block, coefficients.data());
    of_step = std::exp2(static_cast<float>(step) / kPerOctave);
    for (float& coefficient : coefficients) coefficient *= of_step;
  } else {
    coefficients.resize(to_size(tokens * count));
    decode_runs(runs_of(step), bytes, size, tokens, count, coefficients.data());
  }
  synthesis_.run(std::move(coefficients), tokens, count, of_step, x);
}

}  // namespace headspan
