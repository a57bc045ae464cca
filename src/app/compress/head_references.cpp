#include "app/compress/head_references.h"

#include "app/compress/causal_references.h"
#include "app/compress/graph_references.h"
#include "app/compress/layer_references.h"

namespace headspan {

StreamReferences choose_references(const Job::Compress& rule, const std::map<Stream, RegressionData>& data,
                                   const std::map<Stream, std::vector<double>>& metrics) {
  const ReferenceInput input(rule, data, metrics);
  References chosen = rule.algorithm != CompressionAlgorithm::headspan ? graph_references(input)
                      : rule.scope == ReferenceScope::layer            ? layer_references(input)
                                                                       : causal_references(input);
  StreamReferences result;
  for (std::size_t s = 0; s < chosen.size(); ++s) result[rule.streams[s]] = std::move(chosen[s]);
  return result;
}

}  // namespace headspan
