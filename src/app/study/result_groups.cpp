#include "app/study/result_groups.h"

namespace headspan {

void write_tokens(NetcdfFile& file, const std::vector<Sequence>& sequences,
                  const std::vector<std::uint8_t>& heldout) {
  std::vector<std::int64_t> start, length;
  for (const Sequence& sequence : sequences) {
    start.push_back(sequence.start);
    length.push_back(sequence.length);
  }
  file.define_dimension("tokens/sequence", count_from(0, static_cast<std::int64_t>(start.size())));
  file.write_root("tokens/start", {"sequence"}, start, described("position of the first token"));
  file.write_root("tokens/length", {"sequence"}, length, described("tokens of the sequence"));
  file.write_root("tokens/heldout", {"sequence"}, heldout,
                  described("1 where the sequence was held out of the fit"));
}

void write_overlap(NetcdfFile& file, const OverlapTable& table) {
  const std::string group = "overlap/";
  file.define_dimension(group + "projection", table.projections, described("projection"));
  file.define_dimension(group + "effective", table.effective,
                        described("without or with the gain of q_norm and k_norm"));
  file.define_dimension(
      group + "tolerance", table.tolerances,
      described("of ranks: relative to the layer's largest singular value, or the paper's"));
  file.define_dimension(group + "layer", count_from(0, table.layers), described("layer"));
  file.define_dimension(group + "head", count_from(0, table.heads), described("head of a layer"));
  file.define_dimension(group + "other_head", count_from(0, table.heads),
                        described("another head of that layer"));
  file.define_dimension(group + "value", count_from(0, table.values),
                        described("position of a singular value, largest first"));
  const std::vector<std::string> by_tolerance{"projection", "effective", "tolerance", "layer"};
  file.write_root(group + "rank_sum", by_tolerance, table.rank_sum, named("sum of the ranks of the heads"));
  file.write_root(group + "rank_joint", by_tolerance, table.rank_joint, named("rank of all heads together"));
  file.write_root(group + "overlap_dimension", by_tolerance, table.overlap_dimension,
                  named("sum of the ranks of the heads less the joint rank"));
  file.write_root(group + "singular_values", {"projection", "effective", "layer", "value"},
                  table.singular_values, named("singular values of a layer's projection"));
  file.write_root(group + "alignment", {"projection", "layer", "head", "other_head"}, table.alignment,
                  named("mean squared cosine of the principal angles between the weights of two heads"));
  file.set_attribute("overlap", "singular_values_from",
                     std::string(table.from_gram ? "eigenvalues of W^T W" : "W"));
  file.set_attribute("overlap", "alignment_null", table.alignment_null);
}

void write_scores(NetcdfFile& file, const AttentionScores& table) {
  const std::string group = "attention/";
  const std::int64_t count = table.layers * table.heads;
  file.define_dimension(group + "query_head", count_from(0, count),
                        described("query head, in order of layers"));
  std::vector<std::int64_t> layer, head;
  for (std::int64_t i = 0; i < count; ++i) {
    layer.push_back(i / table.heads);
    head.push_back(i % table.heads);
  }
  file.write_root(group + "layer", {"query_head"}, layer, described("layer of the query head"));
  file.write_root(group + "head", {"query_head"}, head, described("query head within its layer"));
  const auto write = [&](const std::string& name, std::vector<double> HeadScores::*score,
                         const std::string& meaning) {
    file.write_root(group + name, {"query_head"}, table.scores.*score, named(meaning));
    file.set_attribute(group + name, "uniform", (table.uniform.*score).front());
  };
  write("induction", &HeadScores::induction,
        "mean weight of the token after the query's first occurrence, where random tokens come twice");
  write("duplicate_token", &HeadScores::duplicate_token,
        "mean weight of the query's first occurrence, where random tokens come twice");
  write("previous_token", &HeadScores::previous_token, "mean weight of the token before the query");
  write("first_token", &HeadScores::first_token, "mean weight of the first token of a sequence");
  write("entropy", &HeadScores::entropy, "mean entropy of the weights, in nats");
}

}  // namespace headspan
