#include "app/inspect/summary.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>

#include "app/job/job_words.h"
#include "base/printable.h"
#include "io/hdf5/h5_file.h"
#include "io/schema.h"
#include "io/stream.h"
#include "stats/nulls/nulls.h"
#include "stats/regression/regression.h"

namespace headspan {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr unsigned kFlagged = kDeficient | kConstant | kOutsideBand;

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double median(std::vector<double> values) {
  if (values.empty()) return kNan;
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

[[noreturn]] void refuse(const H5File& file, const std::string& object, const std::string& wrong) {
  throw InputError(file.path(), object, "", wrong, "this is no result of headspan, or it is damaged");
}

template <class T>
T attribute(const H5File& file, const std::string& object, const std::string& name) {
  auto value = file.read_attribute<T>(object, name);
  if (!value) refuse(file, object, "has no attribute " + name);
  return *value;
}

/// Reads an attribute that is a size or a count.
std::int64_t count(const H5File& file, const std::string& object, const std::string& name,
                   std::int64_t minimum = 0) {
  const auto value = attribute<std::int64_t>(file, object, name);
  if (value < minimum)
    throw InputError(file.path(), object + ": " + name, std::to_string(value), "is no size",
                     "the file is damaged");
  return value;
}

/// Reads a text attribute, escaped for a terminal.
std::string text(const H5File& file, const std::string& object, const std::string& name) {
  return escaped(attribute<std::string>(file, object, name));
}

H5Dataset dataset(const H5File& file, const std::string& name, const std::vector<std::int64_t>& shape) {
  if (!file.has(name)) refuse(file, name, "is missing");
  H5Dataset found = file.open_dataset(name);
  if (found.shape() != shape) refuse(file, name, "has not the shape that it should have");
  return found;
}

template <class T>
std::vector<T> column(const H5File& file, const std::string& name, std::int64_t heads) {
  std::vector<T> values(static_cast<std::size_t>(heads));
  dataset(file, name, {heads}).read_rows(0, heads, values.data());
  return values;
}

/// Reads the pairs of a stream, one target at a time.
class PairReader {
 public:
  PairReader(const H5File& file, StreamSummary& summary)
      : summary_(summary),
        layer_(column<std::int64_t>(file, summary.name + "/target_layer", summary.heads)),
        r2_(dataset(file, summary.name + "/r2", {summary.heads, summary.heads})),
        status_(dataset(file, summary.name + "/status", {summary.heads, summary.heads})) {
    if (summary.n_heldout > 0)
      heldout_.push_back(dataset(file, summary.name + "/r2_heldout", {summary.heads, summary.heads}));
    summary_.layers = static_cast<std::int64_t>(std::set(layer_.begin(), layer_.end()).size());
  }

  void run() {
    for (std::int64_t target = 0; target < summary_.heads; ++target) read_target(target);
    const auto share = [&](double above) { return above / static_cast<double>(pairs_); };
    summary_.found = {mean(best_), median(best_),       mean(best_heldout_), median(best_heldout_),
                      share(sum_), share(above_tenth_), share(above_half_)};
    const PairNull fit(summary_.head_size, summary_.hidden_size, summary_.noise_floor);
    const PairNull heldout(summary_.head_size, summary_.hidden_size, heldout_.empty() ? 1 : 0);
    summary_.null = {fit.mean_best(sources_),
                     fit.median_best(sources_),
                     heldout.mean_best(sources_),
                     heldout.median_best(sources_),
                     fit.mean(),
                     fit.share_above(0.1),
                     fit.share_above(0.5)};
  }

 private:
  template <class T>
  std::vector<T> row(H5Dataset& table, std::int64_t target) const {
    std::vector<T> values(layer_.size());
    table.read_rows(target, 1, values.data());
    return values;
  }

  void read_target(std::int64_t target) {
    for (const std::uint8_t flags : row<std::uint8_t>(status_, target))
      summary_.flagged += (flags & kFlagged) != 0 ? 1 : 0;
    const auto r2 = row<double>(r2_, target);
    const auto self = static_cast<std::size_t>(target);
    std::size_t best = self;
    std::int64_t sources = 0;
    for (std::size_t source = 0; source < r2.size(); ++source) {
      if (source == self || layer_[source] > layer_[self] || std::isnan(r2[source])) continue;
      ++sources;
      sum_ += r2[source];
      above_tenth_ += r2[source] > 0.1 ? 1 : 0;
      above_half_ += r2[source] > 0.5 ? 1 : 0;
      if (best == self || r2[source] > r2[best]) best = source;
    }
    sources_.push_back(sources);
    pairs_ += sources;
    if (best == self) return;
    best_.push_back(r2[best]);
    if (heldout_.empty()) return;
    if (const double heldout = row<double>(heldout_.front(), target)[best]; !std::isnan(heldout))
      best_heldout_.push_back(heldout);
  }

  StreamSummary& summary_;
  std::vector<std::int64_t> layer_;  // [heads]
  H5Dataset r2_, status_;
  std::vector<H5Dataset> heldout_;                     // one table, or none
  std::vector<double> best_, best_heldout_;            // of targets that have a source
  std::vector<std::int64_t> sources_;                  // [heads] number of causal sources
  double sum_ = 0, above_tenth_ = 0, above_half_ = 0;  // of causal pairs
  std::int64_t pairs_ = 0;
};

/// Returns the mean of the values without NaN.
double mean_known(std::vector<double> values) {
  values.erase(std::remove_if(values.begin(), values.end(), [](double value) { return std::isnan(value); }),
               values.end());
  return mean(values);
}

StreamSummary summarise_stream(const H5File& file, const std::string& name) {
  StreamSummary summary;
  summary.name = name;
  if (!file.has(name + "/target")) refuse(file, name + "/target", "is missing");
  const auto shape = file.open_dataset(name + "/target").shape();
  if (shape.size() != 1 || shape[0] < 1) refuse(file, name + "/target", "counts no heads");
  summary.heads = shape[0];
  summary.head_size = count(file, name, "head_size", 1);
  summary.hidden_size = count(file, name, "hidden_size");
  summary.n_fit = count(file, name, "n_fit");
  summary.n_heldout = count(file, name, "n_heldout");
  summary.capture = text(file, name, "capture");
  const auto n = static_cast<double>(summary.n_fit), d = static_cast<double>(summary.head_size);
  summary.noise_floor = d / (n - 1);
  summary.geometric_null = summary.hidden_size > 0 ? d / static_cast<double>(summary.hidden_size) : kNan;
  PairReader(file, summary).run();
  summary.adjusted_best = 1 - (1 - summary.found.mean_best) * (n - 1) / (n - d - 1);
  summary.effective_rank = mean_known(column<double>(file, name + "/effective_rank", summary.heads));
  return summary;
}

CrossSummary summarise_cross(const H5File& file, const std::string& name) {
  const std::string group = "cross/" + name + "/";
  if (!file.has(group + "r2")) refuse(file, group + "r2", "is missing");
  const auto shape = file.open_dataset(group + "r2").shape();
  if (shape.size() != 2 || shape[0] < 1 || shape[1] < 1) refuse(file, group + "r2", "counts no heads");
  CrossSummary summary{name, shape[1], shape[0], kNan, kNan, kNan};
  H5Dataset r2 = dataset(file, group + "r2", shape);
  std::vector<H5Dataset> heldout;
  if (count(file, "cross/" + name, "n_heldout") > 0)
    heldout.push_back(dataset(file, group + "r2_heldout", shape));
  std::vector<double> best, best_heldout, row(static_cast<std::size_t>(shape[1]));
  for (std::int64_t target = 0; target < shape[0]; ++target) {
    r2.read_rows(target, 1, row.data());
    std::replace_if(
        row.begin(), row.end(), [](double value) { return std::isnan(value); }, -HUGE_VAL);
    const auto source = std::max_element(row.begin(), row.end()) - row.begin();
    if (std::isinf(row[static_cast<std::size_t>(source)])) continue;
    best.push_back(row[static_cast<std::size_t>(source)]);
    if (heldout.empty()) continue;
    heldout.front().read_rows(target, 1, row.data());
    best_heldout.push_back(row[static_cast<std::size_t>(source)]);
  }
  summary.mean_best = mean(best);
  summary.mean_best_heldout = mean_known(best_heldout);
  if (file.has(group + "r2_layer_heldout"))
    summary.mean_layer_heldout = mean_known(column<double>(file, group + "r2_layer_heldout", shape[0]));
  return summary;
}

/// Returns the names that groups of two streams or two models may have.
std::vector<std::string> cross_names() {
  std::vector<std::string> names;
  for (const auto& [source, first] : stream_words()) {
    for (const auto& [target, second] : stream_words())
      if (first != second) names.push_back(name_of({first, second}));
    names.push_back(source);
    names.back() += "-reference";
    names.push_back("reference-");
    names.back() += source;
  }
  return names;
}

}  // namespace

ResultSummary summarise_result(const std::string& path) {
  const H5File file = H5File::open(path);
  ResultSummary summary;
  summary.path = path;
  summary.schema = text(file, "/", "headspan_schema");
  check_schema(path, "headspan_schema", summary.schema, "result");
  summary.model_name = text(file, "/", "model_name");
  summary.model_type = text(file, "/", "model_type");
  summary.checkpoint = text(file, "/", "checkpoint");
  summary.random = value_of(weight_source_words(), text(file, "/", "init")) == WeightSource::random;
  summary.mode = text(file, "/", "mode");
  summary.tokens_path = text(file, "/", "tokens_path");
  summary.source = text(file, "/", "source");
  summary.date_created = text(file, "/", "date_created");
  summary.step = attribute<std::int64_t>(file, "/", "step");
  summary.training_tokens = attribute<std::int64_t>(file, "/", "training_tokens");
  for (const auto& [name, stream] : stream_words())
    if (file.has(name)) summary.streams.push_back(summarise_stream(file, name));
  if (summary.streams.empty()) refuse(file, "", "holds none of k, q, v and z");
  summary.reference = file.read_attribute<std::string>("/", "reference_model").value_or("");
  for (const std::string& name : cross_names())
    if (file.has("cross/" + name)) summary.cross.push_back(summarise_cross(file, name));
  return summary;
}

}  // namespace headspan
