#include "app/archive/codec_runs.h"

#include <cmath>

#include "app/archive/run_search.h"
#include "base/checked.h"

namespace headspan {
namespace {

constexpr std::int64_t kTokens = 2048;  // that errors are measured on, about
constexpr int kSteps = 37, kStepsPerOctave = 8;
constexpr double kMostBits = 6;  // of a number, at step 0

}  // namespace

void set_runs(const Transformer& model, const CodecTokens& tokens, const ProcessLayout& processes,
              KvCodec& codec) {
  std::vector<CodecGroup*> groups;
  std::vector<RunSearch> searches;
  for (auto& [stream, of_stream] : codec.streams)
    for (CodecGroup& group : of_stream) {
      groups.push_back(&group);
      searches.emplace_back(group.coefficients());
    }
  CodecCoefficients(model, tokens, processes, codec)
      .for_tokens(tokens.sample.has_heldout(), kTokens,
                  [&](std::size_t g, const GroupCoder&, const std::vector<float>& coefficients) {
                    searches[g].add(coefficients.data(), static_cast<std::int64_t>(coefficients.size()) /
                                                             groups[g]->coefficients());
                  });
  for (std::size_t g = 0; g < groups.size(); ++g) {
    searches[g].sum(processes.group());
    for (int step = 0; step < kSteps; ++step) {
      const double bits = kMostBits * std::exp2(-static_cast<double>(step) / kStepsPerOctave);
      groups[g]->runs.push_back(
          searches[g].find(static_cast<std::int64_t>(bits * static_cast<double>(codec.columns(*groups[g])))));
    }
  }
}

}  // namespace headspan
