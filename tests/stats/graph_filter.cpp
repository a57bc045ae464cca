// select_by_graph as a filter, for test_reference_graph.py. Reads cases from standard input until it ends:
//
//   heads code targets least most   layer of each head   R² of each target and source, "nan" for none
//
// and writes for each case one line: for each head its references, "-" for none, with commas between.
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>

#include "stats/compression/reference_graph.h"

int main() {
  std::int64_t heads = 0;
  headspan::GraphRule rule;
  while (std::cin >> heads >> rule.code >> rule.targets >> rule.least >> rule.most) {
    const auto count = static_cast<std::size_t>(heads);
    std::vector<std::int64_t> layer(count);
    for (std::int64_t& value : layer) std::cin >> value;
    std::vector<double> r2(count * count);
    std::string word;
    for (double& value : r2) {
      std::cin >> word;
      value = std::strtod(word.c_str(), nullptr);
    }
    for (const auto& references : headspan::select_by_graph(r2, layer, rule)) {
      std::string line;
      for (const std::int64_t reference : references)
        line += (line.empty() ? "" : ",") + std::to_string(reference);
      std::printf("%s ", line.empty() ? "-" : line.c_str());
    }
    std::printf("\n");
  }
}
