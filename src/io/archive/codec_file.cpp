#include "io/archive/codec_file.h"

#include <algorithm>
#include <cmath>

#include "base/checked.h"
#include "base/printable.h"
#include "io/hdf5/h5_file.h"
#include "io/schema.h"

namespace headspan {
namespace {

constexpr const char* kSchema = "1.0";
constexpr std::int64_t kMostSize = std::int64_t{1} << 20;  // so that products of three sizes fit in 64 bits
constexpr std::int64_t kMostModels = 4096;                 // each has a table in memory
constexpr std::int64_t kMostDeviation = 64 * kPerOctave;   // of either sign

template <class T>
void write_array(H5File& file, const std::string& name, const std::vector<T>& values,
                 const std::vector<std::int64_t>& shape) {
  auto dataset = file.create_dataset<T>(name, shape);
  if (!values.empty()) dataset.write_rows(values.data(), 0, shape[0]);
}

void write_models(H5File& file, const std::vector<LevelModel>& models) {
  std::size_t most = 0;
  for (const LevelModel& model : models) most = std::max(most, model.slots.size());
  std::vector<std::uint16_t> slots;
  std::vector<std::int64_t> shift;
  std::vector<float> offsets;
  for (const LevelModel& model : models) {
    slots.insert(slots.end(), model.slots.begin(), model.slots.end());
    slots.insert(slots.end(), most - model.slots.size(), 0);
    shift.push_back(model.shift);
    offsets.insert(offsets.end(), {model.offset_of_one, model.offset_of_more});
  }
  const auto count = static_cast<std::int64_t>(models.size());
  file.create_group("models");
  write_array(file, "models/slots", slots, {count, static_cast<std::int64_t>(most)});
  write_array(file, "models/shift", shift, {count});
  write_array(file, "models/offsets", offsets, {count, 2});
}

void write_curve(H5File& file, const std::vector<RatePoint>& curve) {
  std::vector<std::int64_t> steps;
  std::vector<double> bits, kl;
  for (const RatePoint& point : curve) {
    steps.push_back(point.step);
    bits.push_back(point.bits);
    kl.push_back(point.kl);
  }
  const auto count = static_cast<std::int64_t>(curve.size());
  file.create_group("curve");
  write_array(file, "curve/step", steps, {count});
  write_array(file, "curve/bits", bits, {count});
  write_array(file, "curve/kl", kl, {count});
}

void write_rotary(H5File& file, const KvCodec& codec) {
  file.write_attribute("/", "rotary_of_layer", codec.rotary_of_layer);
  file.create_group("rotary");
  for (std::size_t rule = 0; rule < codec.rotary.size(); ++rule) {
    const std::string name = "rotary/" + std::to_string(rule);
    const std::vector<float>& frequencies = codec.rotary[rule].frequencies;
    file.create_group(name);
    file.write_attribute(name, "length", codec.rotary[rule].length);
    write_array(file, name + "/frequencies", frequencies, {static_cast<std::int64_t>(frequencies.size())});
  }
}

/// Writes [steps, runs, 2]: counts and bits, with zeros behind the last run.
void write_runs(H5File& file, const std::string& name, const std::vector<std::vector<CodedRun>>& runs) {
  std::size_t most = 1;
  for (const auto& of_step : runs) most = std::max(most, of_step.size());
  std::vector<std::int64_t> numbers(runs.size() * most * 2);
  for (std::size_t step = 0; step < runs.size(); ++step)
    for (std::size_t run = 0; run < runs[step].size(); ++run) {
      numbers[2 * (step * most + run)] = runs[step][run].count;
      numbers[2 * (step * most + run) + 1] = runs[step][run].bits;
    }
  write_array(file, name + "/runs", numbers,
              {static_cast<std::int64_t>(runs.size()), static_cast<std::int64_t>(most), 2});
}

void write_group(H5File& file, const std::string& name, const KvCodec& codec, const CodecGroup& group) {
  const std::int64_t columns = codec.columns(group), n = group.coefficients(), d = codec.head_size;
  file.create_group(name);
  file.write_attribute(name, "first_layer", group.first_layer);
  file.write_attribute(name, "layers", group.layers);
  write_array(file, name + "/mean", group.mean, {columns});
  write_array(file, name + "/whitening", group.whitening, {group.layers, codec.kv_heads, d, d});
  write_array(file, name + "/unwhitening", group.unwhitening, {group.layers, codec.kv_heads, d, d});
  write_array(file, name + "/basis", group.basis, {n, columns});
  write_array(file, name + "/scale", group.scale, {n});
  if (!group.runs.empty()) return write_runs(file, name, group.runs);
  write_array(file, name + "/deviations", group.deviations, {kTokenClasses, n});
  write_array(file, name + "/class_weights", group.class_weights, {n});
  write_array(file, name + "/class_edges", group.class_edges, {kTokenClasses - 1});
}

/// Reads and checks one codec.
class CodecReader {
 public:
  explicit CodecReader(const std::string& path) : path_(path), file_(H5File::open(path)) {}

  KvCodec read() {
    check_schema(path_, "headspan_codec", attribute<std::string>("/", "headspan_codec"), "codec");
    codec_.config_sha256 = attribute<std::string>("/", "config_sha256");
    codec_.weights_digest = attribute<std::string>("/", "weights_digest");
    codec_.layers = number("/", "layers", 1, kMostSize);
    codec_.kv_heads = number("/", "kv_heads", 1, kMostSize);
    codec_.head_size = number("/", "head_size", 1, kMostSize);
    codec_.exact_first = number("/", "exact_first", 0, kMostSize);
    codec_.lowest_deviation = to_int(number("/", "lowest_deviation", -kMostDeviation, kMostDeviation));
    checked_mul(checked_mul(codec_.layers, codec_.kv_heads, "columns of a codec"),
                checked_mul(codec_.head_size, codec_.head_size, "columns of a codec"), "columns of a codec");
    read_curve();
    read_models();
    read_rotary();
    for (const auto& [name, stream] : cached_stream_words()) read_stream(name, codec_.streams[stream]);
    return std::move(codec_);
  }

 private:
  [[noreturn]] void refuse(const std::string& object, const std::string& value,
                           const std::string& what) const {
    throw InputError(path_, object, value, what, "give a codec as headspan archive calibrate wrote it");
  }

  template <class T>
  T attribute(const std::string& object, const std::string& name) const {
    auto value = file_.read_attribute<T>(object, name);
    if (!value) refuse(object, "", "has no attribute " + name);
    return *value;
  }

  std::int64_t number(const std::string& object, const std::string& name, std::int64_t lowest,
                      std::int64_t highest) const {
    const auto value = attribute<std::int64_t>(object, name);
    if (value < lowest || value > highest)
      refuse(object == "/" ? name : object + ": " + name, std::to_string(value),
             "is not one of " + std::to_string(lowest) + " to " + std::to_string(highest));
    return value;
  }

  H5Dataset dataset(const std::string& name) const {
    if (!file_.has(name)) refuse(name, "", "is missing");
    return file_.open_dataset(name);
  }

  template <class T>
  std::vector<T> array(const std::string& name, const std::vector<std::int64_t>& shape) const {
    H5Dataset found = dataset(name);
    if (found.shape() != shape) refuse(name, "", "has another shape than the attributes say");
    std::int64_t size = 1;
    for (const std::int64_t extent : shape) size = checked_mul(size, extent, "numbers of a codec");
    std::vector<T> values(to_size(size));
    if (size > 0) found.read_rows(0, shape[0], values.data());
    for (const T value : values)
      if constexpr (std::is_floating_point_v<T>)
        if (!std::isfinite(value)) refuse(name, printable(value), "is not a finite number");
    return values;
  }

  /// Bits fall and the loss rises from point to point.
  void read_curve() {
    const std::vector<std::int64_t> shape = dataset("curve/step").shape();
    if (shape.size() != 1 || shape[0] < 2 || shape[0] > kMostModels)
      refuse("curve/step", "", "is no curve of at least two points");
    const auto steps = array<std::int64_t>("curve/step", shape);
    const auto bits = array<double>("curve/bits", shape), kl = array<double>("curve/kl", shape);
    for (std::size_t i = 0; i < steps.size(); ++i) {
      const bool follows = i == 0 || (steps[i] > steps[i - 1] && bits[i] < bits[i - 1] && kl[i] > kl[i - 1]);
      if (!follows || std::abs(steps[i]) > kMostDeviation || !(bits[i] >= 0) || !(kl[i] > 0))
        refuse("curve", std::to_string(i), "is a point that a codec cannot have here");
      codec_.curve.push_back({static_cast<int>(steps[i]), bits[i], kl[i]});
    }
  }

  /// A codec without models is one of runs.
  void read_models() {
    if (!file_.has("models")) return;
    const std::vector<std::int64_t> shape = dataset("models/slots").shape();
    if (shape.size() != 2 || shape[0] < 1 || shape[0] > kMostModels || shape[1] < 2)
      refuse("models/slots", "", "is no table of models");
    const auto slots = array<std::uint16_t>("models/slots", shape);
    const auto shift = array<std::int64_t>("models/shift", {shape[0]});
    const auto offsets = array<float>("models/offsets", {shape[0], 2});
    for (std::int64_t m = 0; m < shape[0]; ++m) {
      LevelModel model{{},
                       static_cast<int>(std::clamp<std::int64_t>(shift[to_size(m)], -1, 99)),
                       offsets[to_size(2 * m)],
                       offsets[to_size(2 * m + 1)]};
      for (std::int64_t s = 0; s < shape[1]; ++s)
        if (const std::uint16_t of_symbol = slots[to_size(m * shape[1] + s)]; of_symbol > 0)
          model.slots.push_back(of_symbol);
      codec_.models.push_back(std::move(model));
    }
    try {
      LevelCoder{codec_.models};
    } catch (const InputError& error) {
      refuse("models", "", error.what());
    }
  }

  /// Rules are numbered from 0; every layer has one of them or none.
  void read_rotary() {
    for (std::string name = "rotary/0"; file_.has(name);
         name = "rotary/" + std::to_string(codec_.rotary.size())) {
      const std::vector<std::int64_t> shape = dataset(name + "/frequencies").shape();
      if (shape.size() != 1 || 2 * shape[0] > codec_.head_size)
        refuse(name + "/frequencies", "", "is no list of at most half as many numbers as a head has");
      RotaryRule rule{array<float>(name + "/frequencies", shape), attribute<double>(name, "length")};
      if (!(rule.length > 0 && std::isfinite(rule.length)))
        refuse(name + ": length", printable(rule.length), "is not a positive number");
      codec_.rotary.push_back(std::move(rule));
    }
    codec_.rotary_of_layer = attribute<std::vector<std::int64_t>>("/", "rotary_of_layer");
    if (static_cast<std::int64_t>(codec_.rotary_of_layer.size()) != codec_.layers)
      refuse("rotary_of_layer", "", "has not as many numbers as there are layers");
    for (const std::int64_t rule : codec_.rotary_of_layer)
      if (rule < -1 || rule >= static_cast<std::int64_t>(codec_.rotary.size()))
        refuse("rotary_of_layer", std::to_string(rule), "is no rule of the codec");
  }

  /// The groups are numbered from 0 and follow each other until they have all layers.
  void read_stream(const std::string& stream, std::vector<CodecGroup>& groups) {
    std::int64_t layer = 0;
    while (layer < codec_.layers) {
      groups.push_back(read_group(stream + "/" + std::to_string(groups.size()), layer));
      layer += groups.back().layers;
    }
  }

  CodecGroup read_group(const std::string& name, std::int64_t first_layer) const {
    if (!file_.has(name)) refuse(name, "", "is missing");
    CodecGroup group;
    group.first_layer = number(name, "first_layer", first_layer, first_layer);
    group.layers = number(name, "layers", 1, codec_.layers - first_layer);
    const std::int64_t columns = codec_.columns(group), d = codec_.head_size;
    const std::vector<std::int64_t> shape = dataset(name + "/scale").shape();
    if (shape.size() != 1 || shape[0] < 1 || shape[0] > columns)
      refuse(name + "/scale", "", "is no list of 1 to " + std::to_string(columns) + " coefficients");
    const std::int64_t n = shape[0];
    group.mean = array<float>(name + "/mean", {columns});
    group.whitening = array<float>(name + "/whitening", {group.layers, codec_.kv_heads, d, d});
    group.unwhitening = array<float>(name + "/unwhitening", {group.layers, codec_.kv_heads, d, d});
    group.basis = array<std::int8_t>(name + "/basis", {n, columns});
    group.scale = array<float>(name + "/scale", {n});
    for (const float scale : group.scale)
      if (!(scale > 0)) refuse(name + "/scale", printable(scale), "is not a positive number");
    if (codec_.models.empty()) {
      read_runs(name, n, group);
      return group;
    }
    group.deviations = array<std::int16_t>(name + "/deviations", {kTokenClasses, n});
    for (const std::int16_t deviation : group.deviations)
      if (std::abs(deviation) > kMostDeviation)
        refuse(name + "/deviations", std::to_string(deviation), "is no deviation of a codec");
    group.class_weights = array<float>(name + "/class_weights", {n});
    group.class_edges = array<float>(name + "/class_edges", {kTokenClasses - 1});
    if (!std::is_sorted(group.class_edges.begin(), group.class_edges.end()))
      refuse(name + "/class_edges", "", "are not in order");
    return group;
  }

  void read_runs(const std::string& name, std::int64_t n, CodecGroup& group) const {
    const std::vector<std::int64_t> shape = dataset(name + "/runs").shape();
    if (shape.size() != 3 || shape[0] < 1 || shape[0] > kMostModels || shape[1] > n || shape[2] != 2)
      refuse(name + "/runs", "", "is no table of runs");
    const auto numbers = array<std::int64_t>(name + "/runs", shape);
    for (std::int64_t step = 0; step < shape[0]; ++step) {
      std::int64_t left = n;
      std::vector<CodedRun> runs;
      for (std::int64_t run = 0; run < shape[1]; ++run) {
        const std::int64_t count = numbers[to_size(2 * (step * shape[1] + run))],
                           bits = numbers[to_size(2 * (step * shape[1] + run) + 1)];
        if (count == 0) break;
        if (count < 0 || count > left || (bits != 2 && bits != 4 && bits != 8))
          refuse(name + "/runs", std::to_string(step), "has a run that no codec has");
        left -= count;
        runs.push_back({count, to_int(bits)});
      }
      group.runs.push_back(std::move(runs));
    }
  }

  std::string path_;
  H5File file_;
  KvCodec codec_;
};

}  // namespace

void write_codec(const std::string& path, const KvCodec& codec, const NetcdfAttributes& attributes) {
  H5File file = H5File::create(path);
  for (const auto& [name, value] : attributes) file.write_attribute("/", name, value);
  file.write_attribute("/", "headspan_codec", kSchema);
  file.write_attribute("/", "config_sha256", codec.config_sha256);
  file.write_attribute("/", "weights_digest", codec.weights_digest);
  file.write_attribute("/", "layers", codec.layers);
  file.write_attribute("/", "kv_heads", codec.kv_heads);
  file.write_attribute("/", "head_size", codec.head_size);
  file.write_attribute("/", "exact_first", codec.exact_first);
  file.write_attribute("/", "lowest_deviation", std::int64_t{codec.lowest_deviation});
  write_curve(file, codec.curve);
  if (!codec.models.empty()) write_models(file, codec.models);
  write_rotary(file, codec);
  for (const auto& [stream, groups] : codec.streams) {
    const std::string& name = word_of(cached_stream_words(), stream);
    file.create_group(name);
    for (std::size_t g = 0; g < groups.size(); ++g)
      write_group(file, name + "/" + std::to_string(g), codec, groups[g]);
  }
  file.close();
}

KvCodec read_codec(const std::string& path) { return CodecReader(path).read(); }

}  // namespace headspan
