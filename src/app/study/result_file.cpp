#include "app/study/result_file.h"

#include <algorithm>
#include <limits>

#include "app/study/result_groups.h"
#include "base/checked.h"
#include "base/range.h"

namespace headspan {
namespace {

/// Returns a table of ints as std::int32_t, which H5Dataset can write.
std::vector<std::int32_t> to_int32(const std::vector<int>& values) { return {values.begin(), values.end()}; }

NetcdfAttributes status_attributes() {
  NetcdfAttributes attributes = flag_attributes<std::uint8_t>({{kDeficient, "deficient_source"},
                                                               {kConstant, "constant_target_coordinate"},
                                                               {kTooFewTokens, "too_few_tokens"},
                                                               {kOutsideBand, "outside_band"},
                                                               {kNotComputed, "not_computed"}});
  attributes.insert(attributes.begin(), {"long_name", std::string("what to know of each fit")});
  return attributes;
}

/// Returns the values of some heads.
template <class T>
std::vector<T> part_of(const std::vector<T>& values, Range heads) {
  return {values.begin() + heads.first, values.begin() + heads.first + heads.count};
}

/// Returns the numbers of the layers that have heads.
std::vector<std::int64_t> layers_of(const HeadLayout& layout) {
  std::vector<std::int64_t> layers(layout.layer);
  layers.erase(std::unique(layers.begin(), layers.end()), layers.end());
  return layers;
}

std::string meaning_of(SimilarityMeasure measure) {
  switch (measure) {
    case SimilarityMeasure::cka:
      return "linear centred kernel alignment of two heads";
    case SimilarityMeasure::cca:
      return "mean squared canonical correlation of two heads";
    case SimilarityMeasure::procrustes:
      return "Procrustes distance of two heads, 0 to 1";
  }
  return {};
}

std::string cross_group(const PairResult& cross) { return "cross/" + cross.origin.name(); }

/// Writes what a stream and a pair of streams have in common into a group: targets, sources, their fits.
class HeadTables {
 protected:
  HeadTables(NetcdfFile& file, const ResultHeader& header, std::string object, const PairResult& result)
      : file_(file),
        header_(header),
        object_(std::move(object)),
        group_(object_ + "/"),
        result_(result),
        layout_(result.layout),
        rules_(result.rules),
        targets_{result.pairs.targets.first - layout_.targets().first, result.pairs.targets.count} {}

  bool heldout() const { return rules_.tokens_heldout > 0; }

  /// Defines an axis of heads.
  void define_heads(const std::string& axis, Range heads) {
    file_.define_dimension(group_ + axis, count_from(0, heads.count),
                           described(axis + " head, counted layer by layer"));
    const auto part = [&](const std::vector<std::int64_t>& values) { return part_of(values, heads); };
    file_.define_coordinate(group_ + axis + "_layer", axis, part(layout_.layer),
                            described("layer of the " + axis));
    file_.define_coordinate(group_ + axis + "_head", axis, part(layout_.head),
                            described("head within its layer"));
  }

  void define_dimensions() {
    define_heads("target", layout_.targets());
    define_heads("source", layout_.sources());
    file_.define_dimension(group_ + "reference", count_from(0, header_.references),
                           described("position of a reference head, best first"));
    file_.define_dimension(group_ + "count", count_from(1, header_.references),
                           described("number of reference heads"));
  }

  void write_attributes() {
    const StreamOrigin& origin = result_.origin;
    const double nan = std::numeric_limits<double>::quiet_NaN();
    const auto d = static_cast<double>(layout_.source_size()), m = static_cast<double>(layout_.hidden_size);
    std::vector<double> floor, null;
    for (std::int64_t count = 1; count <= header_.references; ++count) {
      const double p = static_cast<double>(count) * d;
      floor.push_back(rules_.tokens > 1 ? p / static_cast<double>(rules_.tokens - 1) : nan);
      null.push_back(layout_.hidden_size > 0 ? p / m : nan);
    }
    file_.set_attribute(object_, "n_fit", rules_.tokens);
    file_.set_attribute(object_, "n_heldout", rules_.tokens_heldout);
    file_.set_attribute(object_, "head_size", layout_.target_size());
    file_.set_attribute(object_, "hidden_size", layout_.hidden_size);
    file_.set_attribute(object_, "capture", origin.capture_name());
    file_.set_attribute(object_, "forward_dtype", dtype_name(origin.forward_dtype));
    file_.set_attribute(object_, "precision", word_of(precision_words(), origin.precision));
    file_.set_attribute(object_, "references", header_.references);
    file_.set_attribute(object_, "pool", header_.pool);
    file_.set_attribute(object_, "skip_first", origin.skip_first);
    file_.set_attribute(object_, "noise_floor", floor);
    file_.set_attribute(object_, "geometric_null", null);
  }

  template <class T>
  void rows(const std::string& name, const std::vector<std::string>& dimensions, const std::vector<T>& values,
            const NetcdfAttributes& attributes) {
    file_.write(group_ + name, dimensions, values.data(), targets_.first, targets_.count, attributes);
  }

  /// Writes values: [targets, heads]. Only those of sources are in the file.
  template <class T>
  void pair_rows(const std::string& name, const std::vector<T>& values, const NetcdfAttributes& attributes) {
    const std::vector<std::string> matrix{"target", "source"};
    const Range sources = layout_.sources();
    if (sources.count == layout_.heads()) return rows(name, matrix, values, attributes);
    std::vector<T> of_sources;
    for (std::int64_t t = 0; t < targets_.count; ++t) {
      const auto row = values.begin() + t * layout_.heads() + sources.first;
      of_sources.insert(of_sources.end(), row, row + sources.count);
    }
    rows(name, matrix, of_sources, attributes);
  }

  void write_pairs() {
    const PairTable& pairs = result_.pairs;
    pair_rows("r2", pairs.r2, named("in-sample R2 of target from source"));
    pair_rows("r2_weighted", pairs.r2_weighted, named("variance-weighted in-sample R2"));
    if (heldout()) pair_rows("r2_heldout", pairs.r2_heldout, named("R2 on held-out sequences"));
    pair_rows("status", pairs.status, status_attributes());
    file_.write_root(group_ + "rank", {"source"}, part_of(to_int32(pairs.rank), layout_.sources()),
                     named("regressors kept"));
    file_.write_root(group_ + "pivot", {"source"}, part_of(pairs.pivot, layout_.sources()),
                     named("smallest kept pivot"));
    file_.write_root(group_ + "r2_error", {"source"}, part_of(errors_of(pairs.pivot), layout_.sources()),
                     named("bound of the error of r2 by rounding"));
  }

  /// Returns the bound of the error of R² for each pivot.
  std::vector<double> errors_of(std::vector<double> pivots) const {
    for (double& pivot : pivots) pivot = rules_.r2_error(pivot);
    return pivots;
  }

  void write_similarity(const SimilarityTable& table) {
    const auto null_of = [&](SimilarityMeasure measure, double dimensions) {
      if (!(dimensions > 0)) return std::numeric_limits<double>::quiet_NaN();
      return random_similarity(measure, static_cast<double>(layout_.source_size()) / dimensions,
                               static_cast<double>(layout_.target_size()) / dimensions);
    };
    for (const auto& [measure, values] : table.values) {
      const std::string name = word_of(similarity_words(), measure);
      pair_rows(name, values, named(meaning_of(measure)));
      file_.set_attribute(group_ + name, "null", null_of(measure, static_cast<double>(layout_.hidden_size)));
      file_.set_attribute(group_ + name, "noise_floor",
                          null_of(measure, static_cast<double>(rules_.tokens - 1)));
    }
  }

  void write_selection(const std::string& rule, const SelectionTable& table) {
    const std::vector<std::string> by_count{"target", "count"};
    std::vector<std::int32_t> sources = to_int32(table.sources);
    for (std::int32_t& source : sources)
      if (source >= 0) source -= static_cast<std::int32_t>(layout_.sources().first);
    rows("references_" + rule, {"target", "reference"}, sources,
         described("source heads chosen, -1 where none"));
    rows("r2_" + rule, by_count, table.r2, named("joint in-sample R2 of the first count references"));
    if (heldout())
      rows("r2_" + rule + "_heldout", by_count, table.r2_heldout, named("joint R2 on held-out sequences"));
    rows("status_" + rule, by_count, table.status, status_attributes());
    rows("rank_" + rule, by_count, to_int32(table.rank), named("regressors kept"));
    rows("pivot_" + rule, by_count, table.pivot, named("smallest kept pivot"));
    rows("r2_error_" + rule, by_count, errors_of(table.pivot), named("bound of the error of R2 by rounding"));
  }

  /// Writes the tables of pairs and of what was selected from them.
  void write_fits() {
    write_pairs();
    if (result_.similarity) write_similarity(*result_.similarity);
    const bool two_models = result_.origin.reference != ReferenceSide::none;
    for (const PairResult::Selected& selected : result_.selections)
      write_selection(word_of(selection_words(), selected.rule) +
                          (selected.scope == SourceScope::all && !two_models ? "_all" : ""),
                      selected.table);
  }

  NetcdfFile& file_;
  const ResultHeader& header_;
  std::string object_, group_;
  const PairResult& result_;
  const HeadLayout& layout_;
  const FitRules& rules_;
  Range targets_;  // of this rank: the rows that it writes
};

/// Writes the tables of one stream into its group.
class StreamGroup : HeadTables {
 public:
  StreamGroup(NetcdfFile& file, const ResultHeader& header, const StreamResult& stream)
      : HeadTables(file, header, stream.origin.name(), stream), stream_(stream) {}

  void write() {
    define_dimensions();
    define_layers();
    write_attributes();
    write_ceiling_null();
    write_fits();
    if (stream_.similarity && !stream_.similarity->cka_layer.empty())
      write_cka_layer(stream_.similarity->cka_layer);
    write_heads();
    write_angles();
    if (stream_.layer_ceiling) write_layer_ceiling(*stream_.layer_ceiling);
    if (stream_.causal_ceiling)
      file_.write_root(group_ + "ceiling_causal", {"target"}, *stream_.causal_ceiling,
                       named("in-sample R2 from all earlier heads"));
  }

 private:
  void define_layers() {
    file_.define_dimension(group_ + "coordinate", count_from(0, layout_.head_size),
                           described("coordinate of a head"));
    file_.define_dimension(group_ + "layer", layers_of(layout_), described("layer"));
    file_.define_dimension(group_ + "head", count_from(0, stream_.angles.heads),
                           described("head of a layer"));
    file_.define_dimension(group_ + "other_head", count_from(0, stream_.angles.heads),
                           described("another head of that layer"));
  }

  void write_ceiling_null() {
    const auto in_first_layer = std::count(layout_.layer.begin(), layout_.layer.end(), layout_.layer.front());
    const auto d = static_cast<double>(layout_.head_size), m = static_cast<double>(layout_.hidden_size);
    file_.set_attribute(object_, "ceiling_null",
                        layout_.hidden_size > 0 ? static_cast<double>(in_first_layer - 1) * d / m
                                                : std::numeric_limits<double>::quiet_NaN());
  }

  void write_cka_layer(const std::vector<double>& values) {
    file_.define_dimension(group_ + "other_layer", layers_of(layout_), described("another layer"));
    file_.write_root(group_ + "cka_layer", {"layer", "other_layer"}, values,
                     named("linear CKA of whole layers"));
  }

  void write_heads() {
    const HeadSummary& heads = stream_.heads;
    const std::vector<std::string> by_coordinate{"target", "coordinate"};
    rows("mean", by_coordinate, heads.mean, named("mean over the fit part"));
    rows("variance", by_coordinate, heads.variance, named("variance over the fit part"));
    rows("spectrum", by_coordinate, heads.spectrum,
         named("eigenvalues of the head's covariance, descending"));
    rows("effective_rank", {"target"}, heads.effective_rank,
         named("(sum of eigenvalues)^2 / sum of squares"));
    file_.write_root(group_ + "effective_rank_layer", {"layer"}, heads.effective_rank_layer,
                     named("the same of the whole layer's covariance"));
  }

  /// Writes the mean squared canonical correlation of every two heads of a layer. Two heads have as many
  /// canonical correlations as the smaller of their ranks.
  void write_angles() {
    const HeadAngles& angles = stream_.angles;
    std::vector<double> mean(angles.cosines);
    for (std::int64_t l = 0; l < angles.layers; ++l)
      for (std::int64_t r = 0; r < angles.heads; ++r)
        for (std::int64_t t = 0; t < angles.heads; ++t) {
          const int* rank = &angles.rank[to_size(l * angles.heads)];
          mean[to_size((l * angles.heads + r) * angles.heads + t)] /= std::min(rank[r], rank[t]);
        }
    file_.write_root(group_ + "canonical_layer", {"layer", "head", "other_head"}, mean,
                     named("mean squared canonical correlation of two heads of a layer"));
  }

  void write_layer_ceiling(const LayerCeiling& ceiling) {
    rows("ceiling_layer", {"target"}, ceiling.r2, named("in-sample R2 from all other heads of the layer"));
    rows("ceiling_layer_adjusted", {"target"}, ceiling.r2_adjusted,
         named("the same less what as many regressors of noise would give"));
    if (heldout())
      rows("ceiling_layer_heldout", {"target"}, ceiling.r2_heldout, named("the same on held-out sequences"));
    rows("status_ceiling_layer", {"target"}, ceiling.status, status_attributes());
  }

  const StreamResult& stream_;
};

/// Writes the tables of two streams into their group.
class CrossGroup : HeadTables {
 public:
  CrossGroup(NetcdfFile& file, const ResultHeader& header, const PairResult& cross)
      : HeadTables(file, header, cross_group(cross), cross) {}

  void write() {
    define_dimensions();
    write_attributes();
    file_.set_attribute(object_, "source_stream", word_of(stream_words(), result_.origin.stream));
    file_.set_attribute(object_, "target_stream", word_of(stream_words(), *result_.origin.target));
    if (result_.layers) write_layers(*result_.layers);
    write_fits();
  }

 private:
  void write_layers(const LayerFit& fit) {
    const bool to_reference = result_.origin.reference == ReferenceSide::target;
    file_.set_attribute(object_, "source_model", std::string(to_reference ? "unit" : "reference"));
    file_.set_attribute(object_, "target_model", std::string(to_reference ? "reference" : "unit"));
    file_.set_attribute(object_, "source_head_size", layout_.source_size());
    rows("r2_layer", {"target"}, fit.r2,
         named("in-sample R2 from all heads of the other model's layer of this number"));
    if (heldout())
      rows("r2_layer_heldout", {"target"}, fit.r2_heldout, named("the same on held-out sequences"));
    rows("status_layer", {"target"}, fit.status, status_attributes());
  }
};

}  // namespace

void write_result(const Comm& comm, const std::string& path, const ResultHeader& header,
                  const StudyResults& results, const std::optional<OverlapTable>& overlap,
                  const std::optional<AttentionScores>& scores) {
  NetcdfFile file = NetcdfFile::create(comm, path);
  for (const auto& [name, value] : header.attributes) file.set_attribute("/", name, value);
  for (const StreamResult& stream : results.streams) StreamGroup(file, header, stream).write();
  for (const PairResult& cross : results.cross) CrossGroup(file, header, cross).write();
  if (overlap) write_overlap(file, *overlap);
  if (scores) write_scores(file, *scores);
  if (!header.sequences.empty()) write_tokens(file, header.sequences, header.heldout);
  if (file.independence_causes() != 0)
    throw Error(path + ": HDF5 wrote independently, cause " + std::to_string(file.independence_causes()));
  file.close();
}

void verify_result(const std::string& path, const StudyResults& results) {
  const H5File file = H5File::open(path);
  const auto verify = [&](const std::string& group, const HeadLayout& layout) {
    if (!file.has(group + "/r2") ||
        file.open_dataset(group + "/r2").shape() !=
            std::vector<std::int64_t>{layout.targets().count, layout.sources().count})
      throw Error(path + ": " + group + "/r2 is missing or cut short after writing");
  };
  for (const StreamResult& stream : results.streams) verify(stream.origin.name(), stream.layout);
  for (const PairResult& cross : results.cross) verify(cross_group(cross), cross.layout);
}

}  // namespace headspan
