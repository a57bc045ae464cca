#include "app/compress/graph_references.h"

#include <algorithm>

#include "base/checked.h"
#include "stats/compression/reference_graph.h"
#include "stats/regression/pairwise.h"

namespace headspan {
namespace {

constexpr std::int64_t kMinReferences = 4, kMaxReferences = 6;  // in the paper's code

}  // namespace

References graph_references(const ReferenceInput& input) {
  const bool code = input.rule().algorithm == CompressionAlgorithm::paper_code;
  const GraphRule graph{code, 1 - input.rule().stored, code ? kMinReferences : input.references(),
                        code ? kMaxReferences : input.references()};
  References chosen;
  for (std::size_t s = 0; s < input.streams(); ++s) {
    const PairTable pairs = all_pairs(input.data(s));
    const std::int64_t heads = input.layout().heads();
    std::vector<double> r2(to_size(heads * heads), 0.0);
    std::copy(pairs.r2.begin(), pairs.r2.end(), r2.begin() + pairs.targets.first * heads);
    input.comm().sum(r2.data(), heads * heads);  // keeps NaN
    chosen.push_back(select_by_graph(r2, input.layout().layer, graph));
  }
  return chosen;
}

}  // namespace headspan
