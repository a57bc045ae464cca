// select_by_graph as a filter, for test_reference_graph.py. Reads cases from standard input until it ends:
//
//   heads code targets min_references max_references   layer of each head   R² of each target and source, or
//   "nan"
//
// and writes a line for each case: the references of each head, separated by commas, or "-".
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>

#include "stats/compression/reference_graph.h"

int main() {
  std::int64_t heads = 0;
  headspan::GraphRule rule;
  while (std::cin >> heads >> rule.code >> rule.targets >> rule.min_references >> rule.max_references) {
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
