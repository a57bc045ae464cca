#include "io/outputs/compression_plan.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>

#include "base/checked.h"
#include "base/printable.h"
#include "io/hdf5/h5_file.h"
#include "io/schema.h"

namespace headspan {
namespace {

constexpr const char* kSchema = "1.0";
constexpr std::int64_t kMaxSize = std::int64_t{1} << 20;  // so that products of three sizes fit in 64 bits
constexpr const char* kCapture = "roped";

std::int64_t stored_columns(const PlannedBlock& block) {
  return std::accumulate(block.bands.begin(), block.bands.end(), std::int64_t{0},
                         [](std::int64_t sum, const Band& band) { return sum + band.columns; });
}

/// Returns the names of the plan's streams, such as "k,v".
std::string stream_names(const CompressionPlan& plan) {
  std::string names;
  for (const auto& [stream, blocks] : plan.streams)
    names += (names.empty() ? "" : ",") + word_of(stream_words(), stream);
  return names;
}

template <class T>
void write_array(H5File& file, const std::string& name, const std::vector<T>& values,
                 const std::vector<std::int64_t>& shape) {
  auto dataset = file.create_dataset<T>(name, shape);
  if (!values.empty()) dataset.write_rows(values.data(), 0, shape[0]);
}

void write_block(H5File& file, const std::string& group, const PlannedBlock& block,
                 const CompressionPlan& plan) {
  file.create_group(group);
  std::vector<std::int64_t> columns, bits;
  for (const Band& band : block.bands) {
    columns.push_back(band.columns);
    bits.push_back(band.bits);
  }
  file.write_attribute(group, "band_columns", columns);
  file.write_attribute(group, "band_bits", bits);
  const Coding coding = block.bands.empty() ? Coding::symmetric : block.bands.front().coding;
  if (coding != Coding::symmetric)
    file.write_attribute(group, "band_coding", word_of(coding_words(), coding));
  if (!block.bands.empty() && block.bands.front().tokens > 1)
    file.write_attribute(group, "band_tokens", block.bands.front().tokens);
  if (!block.bands.empty() && block.bands.front().clip != 1)
    file.write_attribute(group, "band_clip", block.bands.front().clip);
  file.write_attribute(group, "expected_loss", block.expected_loss);
  const std::int64_t d = plan.head_size, all = plan.columns(), r = stored_columns(block);
  if (plan.algorithm == CompressionAlgorithm::latent) {
    write_array(file, group + "/mean", block.mean, {all});
    write_array(file, group + "/bias", block.bias, {all});
    write_array(file, group + "/eigenvalues", block.eigenvalues, {all});
    write_array(file, group + "/projection", block.projection, {all, r});
    write_array(file, group + "/lift", block.reconstruction, {r, all});
    if (coding == Coding::gain) write_array(file, group + "/weights", block.weights, {r});
  } else if (plan.algorithm == CompressionAlgorithm::oscar) {
    write_array(file, group + "/rotation", block.rotation, {plan.kv_heads, d, d});
    write_array(file, group + "/eigenvalues", block.eigenvalues, {all});
  } else if (!rounds_columns(plan.algorithm)) {
    const auto targets = static_cast<std::int64_t>(block.targets.size());
    write_array(file, group + "/kept", block.kept, {static_cast<std::int64_t>(block.kept.size())});
    write_array(file, group + "/targets", block.targets, {targets});
    write_array(file, group + "/references", block.references, {targets, plan.references});
    write_array(file, group + "/map", block.map, {targets, plan.references * d, d});
    write_array(file, group + "/bias", block.bias, {targets, d});
    write_array(file, group + "/r2_heldout", block.r2_heldout, {targets});
    write_array(file, group + "/loss", block.loss, {targets});
  }
}

/// Reads and checks one plan.
class PlanReader {
 public:
  explicit PlanReader(const std::string& path) : path_(path), file_(H5File::open(path)) {}

  CompressionPlan read() {
    check_schema(path_, "headspan_schema", attribute<std::string>("/", "headspan_schema"), "plan");
    const auto algorithm = attribute<std::string>("/", "algorithm");
    const std::optional<CompressionAlgorithm> known = value_of(algorithm_words(), algorithm);
    if (!known) refuse("algorithm", algorithm, "is not known to this version of headspan");
    plan_.algorithm = *known;
    const std::string capture = file_.read_attribute<std::string>("/", "capture").value_or(kCapture);
    if (capture != kCapture) refuse("capture", capture, "is not how a cache holds keys");
    plan_.config_sha256 = attribute<std::string>("/", "config_sha256");
    plan_.weights_digest = file_.read_attribute<std::string>("/", "weights_digest").value_or("");
    plan_.layers = size("layers", 1);
    plan_.kv_heads = size("kv_heads", 1);
    plan_.head_size = size("head_size", 1);
    plan_.exact_first = size("exact_first", 0);
    plan_.references = size("references", 0);
    plan_.expected_loss = loss("/");
    for (const auto& [name, stream] : cached_stream_words()) {
      if (!file_.has(name)) continue;
      auto& blocks = plan_.streams[stream];
      for (std::int64_t layer = 0; layer < plan_.layers; ++layer)
        blocks.push_back(read_block(name + "/" + std::to_string(layer)));
    }
    check_streams();
    check_references();
    return std::move(plan_);
  }

 private:
  [[noreturn]] void refuse(const std::string& object, const std::string& value,
                           const std::string& what) const {
    throw InputError(path_, object, value, what, "give a plan as headspan calibrate wrote it");
  }

  template <class T>
  T attribute(const std::string& object, const std::string& name) const {
    auto value = file_.read_attribute<T>(object, name);
    if (!value) refuse(object, "", "has no attribute " + name);
    return *value;
  }

  std::int64_t size(const std::string& name, std::int64_t lowest) const {
    const auto value = attribute<std::int64_t>("/", name);
    if (value < lowest || value > kMaxSize) refuse(name, std::to_string(value), "is no size");
    return value;
  }

  template <class T>
  std::vector<T> array(const std::string& name, const std::vector<std::int64_t>& shape) {
    if (!file_.has(name)) refuse(name, "", "is missing");
    auto dataset = file_.open_dataset(name);
    if (dataset.shape() != shape) refuse(name, "", "has another shape than the attributes say");
    std::int64_t size = 1;
    for (const std::int64_t extent : shape) size = checked_mul(size, extent, "values of a plan");
    std::vector<T> values(to_size(size));
    if (size > 0) dataset.read_rows(0, shape[0], values.data());
    return values;
  }

  /// Reads numbers, which must be finite.
  template <class T>
  std::vector<T> numbers(const std::string& name, const std::vector<std::int64_t>& shape) {
    std::vector<T> values = array<T>(name, shape);
    for (const T value : values)
      if (!std::isfinite(value)) refuse(name, printable(value), "is not a finite number");
    return values;
  }

  /// Reads float64 numbers that a cache will hold in float32, and must fit there.
  std::vector<double> cached_numbers(const std::string& name, const std::vector<std::int64_t>& shape) {
    std::vector<double> values = numbers<double>(name, shape);
    for (const double value : values)
      if (std::abs(value) > std::numeric_limits<float>::max())
        refuse(name, printable(value), "is beyond float32, in which a cache computes");
    return values;
  }

  /// Reads what errors in the columns of a gain cost, which must not be negative.
  std::vector<float> weights(const std::string& group, std::int64_t columns) {
    std::vector<float> values = numbers<float>(group + "/weights", {columns});
    for (const float value : values)
      if (value < 0) refuse(group + "/weights", printable(value), "is negative");
    return values;
  }

  double loss(const std::string& object) const {
    const auto value = attribute<double>(object, "expected_loss");
    if (!std::isfinite(value)) refuse(object + ": expected_loss", printable(value), "is not a finite number");
    return value;
  }

  std::vector<std::int64_t> list(const std::string& name) {
    if (!file_.has(name)) refuse(name, "", "is missing");
    const auto shape = file_.open_dataset(name).shape();
    if (shape.size() != 1) refuse(name, "", "is no list");
    return array<std::int64_t>(name, shape);
  }

  PlannedBlock read_block(const std::string& group) {
    if (!file_.has(group)) refuse(group, "", "is missing");
    PlannedBlock block;
    read_bands(group, block);
    block.expected_loss = loss(group);
    const std::int64_t all = plan_.columns(), r = stored_columns(block);
    if (rounds_columns(plan_.algorithm)) {
      if (r != all) refuse(group, "", "must store every column");
      const std::int64_t d = plan_.head_size;
      if (plan_.algorithm == CompressionAlgorithm::oscar)
        block.rotation = numbers<float>(group + "/rotation", {plan_.kv_heads, d, d});
    } else if (plan_.algorithm == CompressionAlgorithm::latent) {
      if (r > all) refuse(group, "", "stores more columns than there are");
      block.mean = cached_numbers(group + "/mean", {all});
      block.bias = cached_numbers(group + "/bias", {all});
      block.eigenvalues = numbers<double>(group + "/eigenvalues", {all});
      block.projection = numbers<float>(group + "/projection", {all, r});
      block.reconstruction = numbers<float>(group + "/lift", {r, all});
      if (has_gain(block.bands)) block.weights = weights(group, r);
    } else {
      block.kept = list(group + "/kept");
      block.targets = list(group + "/targets");
      read_targets(group, block);
      check_heads(group, block);
    }
    return block;
  }

  void read_bands(const std::string& group, PlannedBlock& block) const {
    const auto columns = attribute<std::vector<std::int64_t>>(group, "band_columns"),
               bits = attribute<std::vector<std::int64_t>>(group, "band_bits");
    static const std::set<std::int64_t> known{1, 2, 3, 4, 5, 6, 7, 8, kPlainBits};
    if (columns.size() != bits.size())
      refuse(group, "", "names other bands in band_columns than in band_bits");
    const Coding coding = read_coding(group);
    const std::int64_t tokens = file_.read_attribute<std::int64_t>(group, "band_tokens").value_or(1);
    if (tokens != 1 && (tokens != kGroupTokens || coding != Coding::range))
      refuse(group + ": band_tokens", std::to_string(tokens),
             "is not 1, nor " + std::to_string(kGroupTokens) + " with band_coding = range");
    const double clip = file_.read_attribute<double>(group, "band_clip").value_or(1);
    if (!(clip > 0 && clip <= 1) || (clip != 1 && coding != Coding::range))
      refuse(group + ": band_clip", printable(clip),
             "is not 1, nor a share below it with band_coding = range");
    for (std::size_t b = 0; b < bits.size(); ++b) {
      if (known.count(bits[b]) == 0)
        refuse(group + ": band_bits", std::to_string(bits[b]), "is no band of 1 to 8 or 16 bits");
      if (columns[b] < 0 || columns[b] > plan_.columns())
        refuse(group + ": band_columns", std::to_string(columns[b]),
               "is no number of columns of a layer, which has " + std::to_string(plan_.columns()));
      if (coding == Coding::normal && bits[b] > kMostNormalBits)
        refuse(group + ": band_bits", std::to_string(bits[b]),
               "is more than the " + std::to_string(kMostNormalBits) +
                   " that band_coding = normal has levels for");
      if (coding == Coding::gain &&
          (bits[b] == kPlainBits || plan_.algorithm != CompressionAlgorithm::latent))
        refuse(group + ": band_coding", "gain", "is for latents in few bits");
      const bool follows = coding == Coding::gain && stored_columns(block) > 0;
      block.bands.push_back({columns[b], to_int(bits[b]), coding, tokens, clip, follows});
    }
  }

  /// Plans of `quantise` that do not name their coding have ranges.
  Coding read_coding(const std::string& group) const {
    const auto word = file_.read_attribute<std::string>(group, "band_coding");
    if (!word) return plan_.algorithm == CompressionAlgorithm::quantise ? Coding::range : Coding::symmetric;
    const std::optional<Coding> coding = value_of(coding_words(), *word);
    if (!coding) refuse(group + ": band_coding", *word, "is not known to this version of headspan");
    return *coding;
  }

  void read_targets(const std::string& group, PlannedBlock& block) {
    const auto targets = static_cast<std::int64_t>(block.targets.size());
    const std::int64_t d = plan_.head_size;
    block.references = array<std::int64_t>(group + "/references", {targets, plan_.references});
    block.map =
        numbers<float>(group + "/map", {targets, checked_mul(plan_.references, d, "rows of a map"), d});
    block.bias = cached_numbers(group + "/bias", {targets, d});
    block.r2_heldout = array<double>(group + "/r2_heldout", {targets});
    block.loss = numbers<double>(group + "/loss", {targets});
  }

  /// Refuses a block unless each head of the layer is kept or a target, and the kept ones are stored.
  void check_heads(const std::string& group, const PlannedBlock& block) const {
    std::vector<std::int64_t> heads(block.kept);
    heads.insert(heads.end(), block.targets.begin(), block.targets.end());
    std::sort(heads.begin(), heads.end());
    std::vector<std::int64_t> expected(to_size(plan_.kv_heads));
    std::iota(expected.begin(), expected.end(), 0);
    if (heads != expected) refuse(group, "", "must have each head once among kept and targets");
    if (stored_columns(block) != static_cast<std::int64_t>(block.kept.size()) * plan_.head_size)
      refuse(group, "", "stores other columns than those of the kept heads");
  }

  /// Refuses a plan unless it holds keys, values or both, exactly those that it names, and no queries.
  void check_streams() const {
    const std::string found = stream_names(plan_);
    if (found.empty()) refuse("/", "", "holds neither k nor v");
    const std::string named = file_.read_attribute<std::string>("/", "streams").value_or(found);
    if (named != found) refuse("streams", named, "are not those that the plan holds, " + found);
    if (file_.has("q")) refuse("q", "", "is no stream of a cache");
  }

  /// Refuses references that are not kept heads of the same or an earlier layer.
  void check_references() const {
    for (const auto& [stream, blocks] : plan_.streams)
      for (std::size_t layer = 0; layer < blocks.size(); ++layer)
        check_references(word_of(stream_words(), stream), blocks, layer);
  }

  void check_references(const std::string& stream, const std::vector<PlannedBlock>& blocks,
                        std::size_t layer) const {
    for (const std::int64_t head : blocks[layer].references)
      if (head != -1 && !is_kept(head, layer, blocks))
        refuse(stream + "/" + std::to_string(layer) + "/references", std::to_string(head),
               "is no kept head of this layer or one before");
  }

  /// Returns whether a head of the stream is kept and lies in this layer or an earlier one.
  bool is_kept(std::int64_t head, std::size_t layer, const std::vector<PlannedBlock>& blocks) const {
    const std::int64_t head_layer = head / plan_.kv_heads;
    if (head < 0 || head_layer > static_cast<std::int64_t>(layer)) return false;
    const auto& kept = blocks[to_size(head_layer)].kept;
    return std::find(kept.begin(), kept.end(), head % plan_.kv_heads) != kept.end();
  }

  std::string path_;
  H5File file_;
  CompressionPlan plan_;
};

}  // namespace

double CompressionPlan::full_bytes() const { return static_cast<double>(2 * 2 * columns() * layers); }

double CompressionPlan::stored_bytes() const {
  std::int64_t bytes = 2 * columns() * layers * (2 - static_cast<std::int64_t>(streams.size()));
  for (const auto& [stream, blocks] : streams)
    for (const PlannedBlock& block : blocks)
      for (const Band& band : block.bands) bytes += band_bytes(band);
  return static_cast<double>(bytes);
}

double CompressionPlan::read_bytes() const {
  double bytes = stored_bytes();
  for (const auto& [stream, blocks] : streams)
    for (std::size_t layer = 0; layer < blocks.size(); ++layer) {
      // The referenced heads of earlier layers; each is read once for all targets.
      std::set<std::int64_t> heads(blocks[layer].references.begin(), blocks[layer].references.end());
      heads.erase(heads.begin(), heads.lower_bound(0));
      heads.erase(heads.lower_bound(static_cast<std::int64_t>(layer) * kv_heads), heads.end());
      bytes += static_cast<double>(2 * head_size * static_cast<std::int64_t>(heads.size()));
    }
  return bytes;
}

std::int64_t CompressionPlan::group_tokens() const {
  std::int64_t tokens = 1;
  for (const auto& [stream, blocks] : streams)
    for (const PlannedBlock& block : blocks)
      for (const Band& band : block.bands) tokens = std::max(tokens, band.tokens);
  return tokens;
}

double CompressionPlan::map_bytes() const {
  std::size_t numbers = 0;
  for (const auto& [stream, blocks] : streams)
    for (const PlannedBlock& block : blocks)
      numbers += block.projection.size() + block.reconstruction.size() + block.map.size() +
                 block.rotation.size() + block.bias.size();
  return 2 * static_cast<double>(numbers);
}

void write_plan(const std::string& path, const CompressionPlan& plan, const NetcdfAttributes& attributes) {
  H5File file = H5File::create(path);
  const NetcdfAttributes members{{"headspan_schema", std::string(kSchema)},
                                 {"algorithm", word_of(algorithm_words(), plan.algorithm)},
                                 {"config_sha256", plan.config_sha256},
                                 {"weights_digest", plan.weights_digest},
                                 {"streams", stream_names(plan)},
                                 {"layers", plan.layers},
                                 {"kv_heads", plan.kv_heads},
                                 {"head_size", plan.head_size},
                                 {"exact_first", plan.exact_first},
                                 {"references", plan.references},
                                 {"expected_loss", plan.expected_loss},
                                 {"stored", plan.stored_bytes() / plan.full_bytes()},
                                 {"bytes_full", plan.full_bytes()},
                                 {"bytes_stored", plan.stored_bytes()},
                                 {"bytes_read", plan.read_bytes()},
                                 {"bytes_maps", plan.map_bytes()}};
  for (const NetcdfAttributes* list : {&members, &attributes})
    for (const auto& [name, value] : *list) file.write_attribute("/", name, value);
  for (const auto& [stream, blocks] : plan.streams) {
    const std::string& name = word_of(stream_words(), stream);
    file.create_group(name);
    for (std::size_t layer = 0; layer < blocks.size(); ++layer)
      write_block(file, name + "/" + std::to_string(layer), blocks[layer], plan);
  }
  file.close();
}

CompressionPlan read_plan(const std::string& path) { return PlanReader(path).read(); }

}  // namespace headspan
