#include "app/inspect/describe_outputs.h"

#include <cstdio>

#include "app/inspect/text_table.h"
#include "app/job/job_words.h"
#include "app/sources/stream_origin.h"
#include "io/archive/archive_file.h"
#include "io/archive/codec_file.h"
#include "io/outputs/compression_plan.h"
#include "io/outputs/gram_check.h"
#include "io/outputs/gram_file.h"

namespace headspan {
namespace {

/// Returns the version of the layout of a file; "" if it does not say.
std::string schema_of(const H5File& file, const std::string& attribute = "headspan_schema") {
  return file.read_attribute<std::string>("/", attribute).value_or("");
}

/// Returns a text such as "12.5 of 64 columns a layer in 2.0 bands, .. bits a column ..", averaged over the
/// layers.
std::string block_text(const CompressionPlan& plan, const std::vector<PlannedBlock>& blocks) {
  double columns = 0, bytes = 0, bands = 0;
  for (const PlannedBlock& block : blocks)
    for (const Band& band : block.bands) {
      columns += static_cast<double>(band.columns);
      bytes += static_cast<double>(band_bytes(band));
      ++bands;
    }
  const auto layers = static_cast<double>(blocks.size());
  char text[160];
  std::snprintf(
      text, sizeof text, "%.1f of %lld columns a layer in %.1f bands, %.2f bits a column with scales",
      columns / layers, static_cast<long long>(plan.columns()), bands / layers, 8 * bytes / columns);
  return columns > 0 ? text : "nothing but the means";
}

}  // namespace

Description describe_plan(const std::string& path) {
  const CompressionPlan plan = read_plan(path);
  char bytes[96];
  std::snprintf(bytes, sizeof bytes, "%.0f of %.0f a token (%.4f), in numbers of 16 bits",
                plan.stored_bytes(), plan.full_bytes(), plan.stored_bytes() / plan.full_bytes());
  char loss[32];
  std::snprintf(loss, sizeof loss, "%.4g", plan.expected_loss);
  Facts facts{
      {"schema", schema_of(H5File::open(path))},
      {"algorithm", word_of(algorithm_words(), plan.algorithm)},
      {"bytes", bytes},
      {"read", std::to_string(static_cast<std::int64_t>(plan.read_bytes())) + " bytes of a token in a step"},
      {"maps", std::to_string(static_cast<std::int64_t>(plan.map_bytes())) + " bytes"},
      {"exact first", std::to_string(plan.exact_first) + " tokens"},
      {"expected loss", loss}};
  for (const auto& [stream, blocks] : plan.streams)
    facts.push_back({"stream " + word_of(stream_words(), stream), block_text(plan, blocks)});
  const Values values{{"schema", facts[0].text},
                      {"algorithm", word_of(algorithm_words(), plan.algorithm)},
                      {"stored_bytes", plan.stored_bytes()},
                      {"full_bytes", plan.full_bytes()},
                      {"read_bytes", plan.read_bytes()},
                      {"map_bytes", plan.map_bytes()},
                      {"exact_first", plan.exact_first},
                      {"expected_loss", plan.expected_loss}};
  return {path, "compression plan", values, facts};
}

Description describe_codec(const std::string& path) {
  const KvCodec codec = read_codec(path);
  Facts facts{{"schema", schema_of(H5File::open(path), "headspan_codec")},
              {"model", std::to_string(codec.layers) + " layers, " + std::to_string(codec.kv_heads) +
                            " KV heads of size " + std::to_string(codec.head_size)},
              {"exact first", std::to_string(codec.exact_first) + " tokens of a document"}};
  Values values{{"schema", facts[0].text},
                {"layers", codec.layers},
                {"kv_heads", codec.kv_heads},
                {"head_size", codec.head_size},
                {"exact_first", codec.exact_first}};
  for (const auto& [stream, groups] : codec.streams) {
    std::int64_t bytes = 0, coefficients = 0;
    for (const CodecGroup& group : groups) {
      bytes += static_cast<std::int64_t>(group.basis.size());
      coefficients += group.coefficients();
    }
    values["streams"][word_of(stream_words(), stream)] = {
        {"groups", groups.size()}, {"coefficients", coefficients}, {"basis_bytes", bytes}};
    facts.push_back({"stream " + word_of(stream_words(), stream),
                     std::to_string(groups.size()) + " groups of layers, " + std::to_string(coefficients) +
                         " coefficients of a token, " + std::to_string(bytes) + " bytes of bases"});
  }
  const RatePoint &most = codec.curve.front(), &least = codec.curve.back();
  facts.push_back({"rate", format_figure(most.bits) + " bits a number (KL " + format_figure(most.kl) +
                               ") to " + format_figure(least.bits) + " (" + format_figure(least.kl) + ")"});
  for (const RatePoint& point : codec.curve)
    values["curve"].push_back({{"step", point.step}, {"bits", point.bits}, {"kl", point.kl}});
  return {path, "codec of keys and values", values, facts};
}

Description describe_archive(const std::string& path) {
  const ArchiveReader archive(path);
  const ArchiveHeader& header = archive.header();
  for (std::int64_t block = 0; block < header.blocks; ++block) archive.read(block);
  const double numbers = 2.0 * static_cast<double>(header.layers * header.kv_heads) *
                         static_cast<double>(header.head_size) * static_cast<double>(header.tokens);
  const double bits = 8 * static_cast<double>(archive.bytes()) / numbers;
  return {
      path,
      "archive of keys and values",
      {{"schema", header.schema},
       {"layers", header.layers},
       {"kv_heads", header.kv_heads},
       {"head_size", header.head_size},
       {"tokens", header.tokens},
       {"first_position", header.first_position},
       {"exact_tokens", header.exact.size()},
       {"type", word_of(element_words(), header.type)},
       {"bytes", archive.bytes()},
       {"bits", bits},
       {"blocks", header.blocks},
       {"codec_sha256", header.codec_sha256},
       {"config_sha256", header.config_sha256}},
      {{"schema", header.schema},
       {"model", std::to_string(header.layers) + " layers, " + std::to_string(header.kv_heads) +
                     " KV heads of size " + std::to_string(header.head_size)},
       {"tokens", std::to_string(header.tokens) + " from position " + std::to_string(header.first_position) +
                      ", " + std::to_string(header.exact.size()) + " of them as they were"},
       {"type", word_of(element_words(), header.type)},
       {"bytes", std::to_string(archive.bytes()) + ", " + format_figure(bits) + " bits a number, in " +
                     std::to_string(header.blocks) + " blocks, none damaged"},
       {"codec", header.codec_sha256},
       {"config", header.config_sha256}}};
}

Description describe_gram(const std::string& path) {
  const H5File file = H5File::open(path);
  Facts facts{{"schema", schema_of(file)}};
  Values values{{"schema", facts[0].text}};
  for (const GramStream& stream : read_known_streams(file)) {
    std::string tokens;
    Values of_stream{{"heads", stream.heads()}, {"head_size", stream.head_size}, {"capture", stream.capture}};
    for (const std::string part : {"fit", "heldout"}) {
      if (part == "heldout" && !stream.heldout) continue;
      check_gram(file, stream, part);
      const auto count = file.read_attribute<std::int64_t>(stream.name + "/" + part, "tokens").value_or(0);
      tokens += ", n_" + part + " " + std::to_string(count);
      of_stream["n_" + part] = count;
    }
    values["streams"][stream.name] = of_stream;
    facts.push_back({"stream " + stream.name, std::to_string(stream.heads()) + " heads of size " +
                                                  std::to_string(stream.head_size) + ", captured " +
                                                  stream.capture + tokens});
  }
  const std::optional<GramAttention> attention = read_attention_sizes(file);
  if (attention) check_attention(path, read_attention(file, Comm::duplicate(MPI_COMM_SELF)));
  facts.push_back({"attention", attention ? "of " + std::to_string(attention->heads) + " query heads in " +
                                                std::to_string(attention->layers) +
                                                " layers: headspan calibrate can take the file"
                                          : ""});
  values["attention"] = attention.has_value();
  return {path, "Grams", values, facts};
}

}  // namespace headspan
