#include "io/outputs/gram_file.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/checked.h"
#include "base/range.h"
#include "dist/matrix/tile_exchange.h"
#include "io/schema.h"
#include "io/stream.h"

namespace headspan {
namespace {

constexpr const char* kAttention = "attention";
constexpr std::int64_t kMaxHeadSize = std::int64_t{1} << 20;
constexpr std::int64_t kMaxTokens = std::int64_t{1} << 53;  // FP64 counts exactly up to here

std::int64_t tile_count(std::int64_t heads) { return checked_mul(heads, heads + 1, "tiles of a Gram") / 2; }

/// Returns the tile whose number is row (row + 1) / 2 + column.
Tile tile_at(std::int64_t number) {
  auto row = static_cast<std::int64_t>((std::sqrt(8.0 * static_cast<double>(number) + 1) - 1) / 2);
  while (row * (row + 1) / 2 > number) --row;
  while ((row + 1) * (row + 2) / 2 <= number) ++row;
  return {row, number - row * (row + 1) / 2};
}

std::vector<Tile> tiles_between(std::int64_t first, std::int64_t last) {
  std::vector<Tile> tiles;
  for (std::int64_t t = first; t < last; ++t) tiles.push_back(tile_at(t));
  return tiles;
}

/// Converts each d x d tile between column-major and row-major.
void transpose_tiles(std::vector<double>& values, std::int64_t d) {
  for (std::size_t tile = 0; tile < values.size(); tile += to_size(d * d))
    for (std::int64_t j = 0; j < d; ++j)
      for (std::int64_t i = 0; i < j; ++i)
        std::swap(values[tile + to_size(i + j * d)], values[tile + to_size(j + i * d)]);
}

/// Calls use(first, last) for chunks of about 64 MiB of this rank's share of the tiles. The number of calls
/// is the same on every rank.
template <class Use>
void for_each_tile_chunk(const Comm& comm, const GramStream& stream, const Use& use) {
  const std::int64_t d = stream.head_size;
  const std::int64_t step = std::max<std::int64_t>(1, (std::int64_t{1} << 23) / (d * d));
  const Range share = range_of(tile_count(stream.heads()), comm.size(), comm.rank());
  const std::int64_t chunks = comm.max((share.count + step - 1) / step);
  for (std::int64_t i = 0; i < chunks; ++i)
    use(share.first + std::min(share.count, i * step), share.first + std::min(share.count, (i + 1) * step));
}

void write_part(H5File& file, const std::string& group, const GramStream& stream, const GramPart& part) {
  const Comm& comm = part.matrix->grid().comm();
  const std::int64_t d = stream.head_size;
  file.create_group(group);
  file.write_attribute(group, "tokens", part.tokens);
  auto mean = file.create_dataset<double>(group + "/mean", {stream.columns()});
  mean.write_rows(part.mean.data(), 0, comm.is_root() ? stream.columns() : 0);
  auto tiles = file.create_dataset<double>(group + "/tiles", {tile_count(stream.heads()), d, d});
  for_each_tile_chunk(comm, stream, [&](std::int64_t first, std::int64_t last) {
    std::vector<double> values = fetch_tiles(*part.matrix, d, tiles_between(first, last));
    transpose_tiles(values, d);
    tiles.write_rows(values.data(), first, last - first);
  });
}

template <class T>
T require(const H5File& file, const std::string& object, const std::string& name) {
  auto value = file.read_attribute<T>(object, name);
  if (!value)
    throw InputError(file.path(), object, "", "has no attribute " + name, "this is no Gram file of headspan");
  return *value;
}

void check_shape(const H5File& file, const std::string& name, const std::vector<std::int64_t>& expected) {
  if (!file.has(name))
    throw InputError(file.path(), name, "", "is missing", "this is no Gram file of headspan");
  if (file.open_dataset(name).shape() != expected)
    throw InputError(file.path(), name, "", "has another shape than the attributes say",
                     "the file is damaged");
}

/// Throws InputError unless the sizes are possible and the heads ascend by (layer, head).
void check_heads(const H5File& file, const GramStream& stream) {
  const auto refuse = [&](const std::string& attribute, const std::string& value, const char* wrong) {
    throw InputError(file.path(), stream.name + ": " + attribute, value, wrong, "the file is damaged");
  };
  if (stream.head_size < 1 || stream.head_size > kMaxHeadSize)
    refuse("head_size", std::to_string(stream.head_size), "is no size of a head");
  if (stream.hidden_size < 0) refuse("hidden_size", std::to_string(stream.hidden_size), "is negative");
  if (stream.skip_first < 0) refuse("skip_first", std::to_string(stream.skip_first), "is negative");
  if (stream.layer.empty() || stream.layer.size() != stream.head.size())
    refuse("layer, head", "", "name no heads, or are of different lengths");
  std::pair<std::int64_t, std::int64_t> last{0, -1};
  for (std::size_t h = 0; h < stream.layer.size(); ++h) {
    const std::pair<std::int64_t, std::int64_t> head{stream.layer[h], stream.head[h]};
    if (head.first < 0 || head.second < 0 || head <= last)
      refuse("layer, head", std::to_string(head.first) + ", " + std::to_string(head.second),
             "does not follow the head before it");
    last = head;
  }
}

std::int64_t read_tokens(const H5File& file, const std::string& group) {
  const auto tokens = require<std::int64_t>(file, group, "tokens");
  if (tokens < 0 || tokens > kMaxTokens)
    throw InputError(file.path(), group + ": tokens", std::to_string(tokens), "is no number of tokens",
                     "the file is damaged");
  return tokens;
}

GramStream read_stream(const H5File& file, const std::string& name) {
  GramStream stream;
  stream.name = name;
  stream.layer = require<std::vector<std::int64_t>>(file, name, "layer");
  stream.head = require<std::vector<std::int64_t>>(file, name, "head");
  stream.head_size = require<std::int64_t>(file, name, "head_size");
  stream.hidden_size = require<std::int64_t>(file, name, "hidden_size");
  stream.capture = require<std::string>(file, name, "capture");
  stream.forward_dtype = require<std::string>(file, name, "forward_dtype");
  stream.precision = require<std::string>(file, name, "precision");
  stream.skip_first = require<std::int64_t>(file, name, "skip_first");
  stream.heldout = file.has(name + "/heldout");
  check_heads(file, stream);
  const std::int64_t d = stream.head_size;
  const auto check_part = [&](const std::string& group) {
    read_tokens(file, group);
    check_shape(file, group + "/mean", {checked_mul(stream.heads(), d, "columns of a Gram")});
    check_shape(file, group + "/tiles", {tile_count(stream.heads()), d, d});
  };
  check_part(name + "/fit");
  if (stream.heldout) check_part(name + "/heldout");
  return stream;
}

/// Throws InputError unless two groups of a file have the same number of tokens: each token has a key, a
/// value and a query.
void check_same_tokens(const H5File& file, const std::string& group, const std::string& first) {
  const std::int64_t tokens = read_tokens(file, group), expected = read_tokens(file, first);
  if (tokens != expected)
    throw InputError(file.path(), group + ": tokens", std::to_string(tokens),
                     "are not the " + std::to_string(expected) + " of " + first, "the file is damaged");
}

}  // namespace

void write_gram(H5File& file, const GramStream& stream, const GramPart& fit,
                const std::optional<GramPart>& heldout) {
  file.create_group(stream.name);
  file.write_attribute(stream.name, "head_size", stream.head_size);
  file.write_attribute(stream.name, "hidden_size", stream.hidden_size);
  file.write_attribute(stream.name, "capture", stream.capture);
  file.write_attribute(stream.name, "forward_dtype", stream.forward_dtype);
  file.write_attribute(stream.name, "precision", stream.precision);
  file.write_attribute(stream.name, "skip_first", stream.skip_first);
  file.write_attribute(stream.name, "layer", stream.layer);
  file.write_attribute(stream.name, "head", stream.head);
  write_part(file, stream.name + "/fit", stream, fit);
  if (heldout) write_part(file, stream.name + "/heldout", stream, *heldout);
}

std::vector<GramStream> read_gram_streams(const H5File& file) {
  if (const auto schema = file.read_attribute<std::string>("/", "headspan_schema"))  // states have none
    check_schema(file.path(), "headspan_schema", *schema, "Grams");
  std::vector<GramStream> streams;
  for (const auto& [name, stream] : stream_words())
    if (file.has(name)) streams.push_back(read_stream(file, name));
  if (streams.empty())
    throw InputError(file.path(), "", "", "holds no Gram of k, q, v or z",
                     "give a file that output.save_gram wrote");
  const GramStream& first = streams.front();
  for (const GramStream& stream : streams) {
    if (stream.heldout != first.heldout)
      throw InputError(
          file.path(), stream.name + "/heldout", "",
          (stream.heldout ? "is there, but not that of " : "is missing, unlike that of ") + first.name,
          "the file is damaged");
  }
  return streams;
}

void check_same_tokens(const H5File& file, const std::vector<GramStream>& streams) {
  const GramStream& first = streams.front();
  for (const GramStream& stream : streams) {
    check_same_tokens(file, stream.name + "/fit", first.name + "/fit");
    if (stream.heldout) check_same_tokens(file, stream.name + "/heldout", first.name + "/heldout");
  }
}

GramPart read_gram(const H5File& file, const GramStream& stream, const std::string& part, Matrix& matrix) {
  const Comm& comm = matrix.grid().comm();
  const std::int64_t d = stream.head_size;
  const std::string group = stream.name + "/" + part;
  GramPart gram{require<std::int64_t>(file, group, "tokens"), std::vector<double>(to_size(stream.columns())),
                &matrix};
  file.open_dataset(group + "/mean").read_rows(0, stream.columns(), gram.mean.data());
  auto tiles = file.open_dataset(group + "/tiles");
  for_each_tile_chunk(comm, stream, [&](std::int64_t first, std::int64_t last) {
    std::vector<double> values(to_size((last - first) * d * d));
    tiles.read_rows(first, last - first, values.data());
    transpose_tiles(values, d);
    store_tiles(matrix, d, tiles_between(first, last), values.data());
  });
  return gram;
}

void write_attention(H5File& file, const Comm& comm, const GramAttention& attention) {
  const std::int64_t d = attention.head_size, layer_size = attention.heads * d * d;
  file.create_group(kAttention);
  file.write_attribute(kAttention, "tokens", attention.tokens);
  const Range share = range_of(attention.layers, comm.size(), comm.rank());
  const auto write = [&](const std::string& name, const std::vector<std::int64_t>& shape,
                         const double* values) {
    file.create_dataset<double>(kAttention + ("/" + name), shape)
        .write_rows(values, share.first, share.count);
  };
  write("scale", {attention.layers}, attention.scale.data() + share.first);
  const std::vector<std::int64_t> shape{attention.layers, attention.heads, d, d};
  write("query", shape, attention.query.data() + share.first * layer_size);
  write("output", shape, attention.output.data() + share.first * layer_size);
}

std::optional<GramAttention> read_attention_sizes(const H5File& file) {
  if (!file.has(kAttention)) return std::nullopt;
  const std::string query = std::string(kAttention) + "/query";
  const std::vector<std::int64_t> shape =
      file.has(query) ? file.open_dataset(query).shape() : std::vector<std::int64_t>();
  if (shape.size() != 4 || shape[2] != shape[3])
    throw InputError(file.path(), query, "", "is no array [layers, heads, d, d]", "the file is damaged");
  check_shape(file, std::string(kAttention) + "/scale", {shape[0]});
  check_shape(file, std::string(kAttention) + "/output", shape);
  if (!file.has("k/fit"))
    throw InputError(file.path(), kAttention, "", "is there without keys", "the file is damaged");
  check_same_tokens(file, kAttention, "k/fit");
  return GramAttention{read_tokens(file, kAttention), shape[0], shape[1], shape[2], {}, {}, {}};
}

GramAttention read_attention(const H5File& file, const Comm& comm) {
  GramAttention attention = read_attention_sizes(file).value();
  const std::int64_t layer_size = attention.heads * attention.head_size * attention.head_size;
  const auto read = [&](const std::string& name, std::int64_t row_size, std::vector<double>& values) {
    values.resize(to_size(attention.layers * row_size));
    file.open_dataset(kAttention + ("/" + name))
        .read_rows(0, comm.is_root() ? attention.layers : 0, values.data());
    comm.broadcast(values.data(), static_cast<std::int64_t>(values.size()), 0);
  };
  read("scale", 1, attention.scale);
  read("query", layer_size, attention.query);
  read("output", layer_size, attention.output);
  return attention;
}

}  // namespace headspan
