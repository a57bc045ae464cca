#include "app/inspect/describe.h"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <set>
#include <sstream>
#include <utility>
#include <vector>

#include "app/inspect/text_table.h"
#include "app/job/job_file.h"
#include "app/sources/stream_origin.h"
#include "base/checked.h"
#include "base/printable.h"
#include "io/archive/archive_file.h"
#include "io/archive/codec_file.h"
#include "io/checkpoint/checkpoint.h"
#include "io/inputs/activations.h"
#include "io/inputs/manifest.h"
#include "io/inputs/tokens.h"
#include "io/outputs/compression_plan.h"
#include "io/outputs/gram_check.h"
#include "io/outputs/gram_file.h"
#include "model/types/read_config.h"
#include "model/weights/weight_loader.h"

namespace headspan {
namespace {

namespace fs = std::filesystem;

using Facts = std::vector<std::pair<std::string, std::string>>;

std::string report(const std::string& path, const std::string& kind, const Facts& facts) {
  std::string text = escaped(path) + ": " + kind + "\n";
  for (const auto& [name, value] : facts) {
    if (value.empty()) continue;
    text += "  " + escaped(name) +
            std::string(std::max<std::size_t>(name.size(), 12) - name.size() + 1, ' ') + escaped(value) +
            "\n";
  }
  return text;
}

/// Returns the version of the layout of a file; "" if it does not say.
std::string schema_of(const H5File& file, const std::string& attribute = "headspan_schema") {
  return file.read_attribute<std::string>("/", attribute).value_or("");
}

/// Returns the lines of a job file, escaped for a terminal.
std::string escaped_lines(const std::string& ini) {
  std::istringstream lines(ini);
  std::string text;
  for (std::string line; std::getline(lines, line);) text += escaped(line) + "\n";
  return text;
}

std::string join(const std::set<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

std::string scaling_text(const std::monostate&) { return ", not scaled"; }

std::string scaling_text(const LinearScaling& scaling) {
  return ", linear scaling by " + format_figure(scaling.factor);
}

std::string scaling_text(const Llama3Scaling& scaling) {
  return ", llama3 scaling by " + format_figure(scaling.factor) + " from " +
         format_figure(scaling.original_max_positions) + " positions";
}

std::string scaling_text(const YarnScaling& scaling) {
  return ", yarn scaling by " + format_figure(scaling.factor) + " from " +
         format_figure(scaling.original_max_positions) + " positions";
}

std::string scaling_text(const LongRopeScaling& scaling) {
  return ", longrope scaling from " + format_figure(scaling.original_max_positions) + " positions";
}

std::string rope_text(const ModelConfig& config) {
  std::string text = "theta " + format_figure(config.rope.theta);
  if (config.rope.share != 1)
    text += ", " + std::to_string(config.rotated_size()) + " of " + std::to_string(config.head_size) +
            " coordinates";
  if (const auto still = std::count(config.rotates.begin(), config.rotates.end(), false); still > 0)
    text += ", none in " + std::to_string(still) + " layers";
  return text + std::visit([](const auto& scaling) { return scaling_text(scaling); }, config.rope.scaling);
}

/// What a scan of all ids of a token file finds.
struct TokenScan {
  std::int64_t largest = 0;
  std::int64_t documents = 0;  ///< 0: unknown
};

TokenScan scan_tokens(const TokenFile& file) {
  constexpr std::int64_t kChunk = 1 << 20;
  const TokenSidecar sidecar = file.sidecar().value_or(TokenSidecar());
  const std::int64_t vocabulary = sidecar.vocab_size.value_or(std::numeric_limits<std::int64_t>::max());
  TokenScan scan;
  bool inside = false;  // whether the last id belongs to an unfinished document
  for (std::int64_t start = 0; start < file.count(); start += kChunk) {
    const auto ids = file.read(start, std::min(kChunk, file.count() - start));
    for (std::size_t i = 0; i < ids.size(); ++i) {
      if (ids[i] < 0 || ids[i] >= vocabulary)
        throw InputError(file.path(), "token " + std::to_string(start + static_cast<std::int64_t>(i)),
                         std::to_string(ids[i]), "is no id of the vocabulary",
                         "ids below " + std::to_string(vocabulary) + " are expected: is the dtype " +
                             file.type().name + " right?");
      scan.largest = std::max(scan.largest, ids[i]);
      inside = std::find(sidecar.eos.begin(), sidecar.eos.end(), ids[i]) == sidecar.eos.end();
      scan.documents += inside ? 0 : 1;
    }
  }
  if (file.format() == TokenFormat::megatron)
    scan.documents = static_cast<std::int64_t>(file.document_ends(file.count()).size());
  else if (!sidecar.eos.empty() && inside)
    ++scan.documents;
  return scan;
}

std::string sidecar_text(const std::optional<TokenSidecar>& sidecar) {
  if (!sidecar) return "none: what the ids mean is for the job to say";
  std::string text = fs::path(sidecar->path).filename().string();
  if (!sidecar->tokenizer.empty()) text += ", tokenizer " + sidecar->tokenizer;
  if (sidecar->vocab_size) text += ", vocabulary " + std::to_string(*sidecar->vocab_size);
  for (const std::int64_t id : sidecar->eos) text += ", eos " + std::to_string(id);
  return text;
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

std::string describe_checkpoint(const std::string& path) {
  const ModelConfig config = read_model_config(path + "/config.json");
  const Checkpoint checkpoint = Checkpoint::open(path);
  check_weights(checkpoint, config, {config.layers, false});
  std::set<std::string> dtypes, files;
  std::int64_t bytes = 0;
  for (const std::string& name : checkpoint.names()) {
    const TensorEntry& entry = checkpoint.entry(name);
    dtypes.insert(entry.dtype);
    files.insert(fs::path(checkpoint.file_of(name)).filename().string());
    bytes = checked_add(bytes, entry.end - entry.begin, "bytes of the checkpoint");
  }
  Facts facts{
      {"model", config.model_type + ", " + std::to_string(config.layers) + " layers, hidden size " +
                    std::to_string(config.hidden_size)},
      {"heads", std::to_string(config.heads) + " query, " + std::to_string(config.kv_heads) +
                    " KV, of size " + std::to_string(config.head_size)},
      {"vocabulary", std::to_string(config.vocab_size)},
      {"positions", std::to_string(config.max_positions)},
      {"rope", rope_text(config)},
      {"weights", std::to_string(checkpoint.names().size()) + " tensors of " + join(dtypes) + ", " +
                      std::to_string(bytes) + " bytes, in " +
                      (files.size() == 1 ? *files.begin() : std::to_string(files.size()) + " files")}};
  for (const std::string& warning : checkpoint.warnings()) facts.push_back({"warning", warning});
  return report(path, "checkpoint folder", facts);
}

std::string describe_tokens(const std::string& path) {
  const TokenFile file = TokenFile::open(path);
  const TokenScan scan = scan_tokens(file);
  const std::string sha256 = hash_token_file(path);
  const bool known = file.sidecar() && !file.sidecar()->sha256.empty();
  return report(path, "token file",
                {{"format", word_of(token_format_words(), file.format()) + " of " + file.type().name},
                 {"tokens", std::to_string(file.count())},
                 {"documents", scan.documents > 0 ? std::to_string(scan.documents) : ""},
                 {"largest id", std::to_string(scan.largest)},
                 {"sidecar", sidecar_text(file.sidecar())},
                 {"sha256", sha256 + (known ? ", as the sidecar says" : "")}});
}

std::string describe_manifest(const std::string& path) {
  const auto rows = read_manifest(path);
  std::vector<std::string> missing;
  for (const ManifestRow& row : rows)
    if (!fs::exists(row.path + "/config.json")) missing.push_back(row.name);
  const auto [first, last] = std::minmax_element(
      rows.begin(), rows.end(), [](const auto& a, const auto& b) { return a.step < b.step; });
  return report(
      path, "manifest",
      {{"checkpoints", std::to_string(rows.size())},
       {"steps", std::to_string(first->step) + " to " + std::to_string(last->step)},
       {"folders", std::to_string(rows.size() - missing.size()) + " of " + std::to_string(rows.size()) +
                       " exist" + (missing.empty() ? "" : "; the first missing is " + missing[0])}});
}

std::string describe_job(const std::string& path) {
  const GivenKeys given = read_job_file(path);
  const auto holds = [&](const std::string& section) {
    const auto first = given.lower_bound(section + ".");
    return first != given.end() && first->first.rfind(section + ".", 0) == 0;
  };
  if (holds("theory")) {
    make_job(Command::theory, path, given);
    return report(path, "job file of headspan theory", {});
  }
  std::string text = escaped(path) + ": job file";
  const bool study = holds("output");
  if (study || !(holds("compress") || holds("evaluate")))
    text += "; a study as it will run:\n\n" + escaped_lines(to_ini(make_job(Command::study, path, given)));
  if (holds("compress"))
    text += "; calibrate as it will run:\n\n" +
            escaped_lines(to_ini(make_job(Command::calibrate, path, given), Command::calibrate));
  if (holds("evaluate"))
    text += "; evaluate as it will run:\n\n" +
            escaped_lines(to_ini(make_job(Command::evaluate, path, given), Command::evaluate));
  return text;
}

std::string describe_plan(const std::string& path) {
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
  return report(path, "compression plan", facts);
}

std::string describe_codec(const std::string& path) {
  const KvCodec codec = read_codec(path);
  Facts facts{{"schema", schema_of(H5File::open(path), "headspan_codec")},
              {"model", std::to_string(codec.layers) + " layers, " + std::to_string(codec.kv_heads) +
                            " KV heads of size " + std::to_string(codec.head_size)},
              {"exact first", std::to_string(codec.exact_first) + " tokens of a document"}};
  for (const auto& [stream, groups] : codec.streams) {
    std::int64_t bytes = 0, coefficients = 0;
    for (const CodecGroup& group : groups) {
      bytes += static_cast<std::int64_t>(group.basis.size());
      coefficients += group.coefficients();
    }
    facts.push_back({"stream " + word_of(stream_words(), stream),
                     std::to_string(groups.size()) + " groups of layers, " + std::to_string(coefficients) +
                         " coefficients of a token, " + std::to_string(bytes) + " bytes of bases"});
  }
  const RatePoint &most = codec.curve.front(), &least = codec.curve.back();
  facts.push_back({"rate", format_figure(most.bits) + " bits a number (KL " + format_figure(most.kl) +
                               ") to " + format_figure(least.bits) + " (" + format_figure(least.kl) + ")"});
  return report(path, "codec of keys and values", facts);
}

std::string describe_archive(const std::string& path) {
  const ArchiveReader archive(path);
  const ArchiveHeader& header = archive.header();
  for (std::int64_t block = 0; block < header.blocks; ++block) archive.read(block);
  const double numbers = 2.0 * static_cast<double>(header.layers * header.kv_heads) *
                         static_cast<double>(header.head_size) * static_cast<double>(header.tokens);
  return report(
      path, "archive of keys and values",
      {{"schema", header.schema},
       {"model", std::to_string(header.layers) + " layers, " + std::to_string(header.kv_heads) +
                     " KV heads of size " + std::to_string(header.head_size)},
       {"tokens", std::to_string(header.tokens) + " from position " + std::to_string(header.first_position) +
                      ", " + std::to_string(header.exact.size()) + " of them as they were"},
       {"type", word_of(element_words(), header.type)},
       {"bytes", std::to_string(archive.bytes()) + ", " +
                     format_figure(8 * static_cast<double>(archive.bytes()) / numbers) +
                     " bits a number, in " + std::to_string(header.blocks) + " blocks, none damaged"},
       {"codec", header.codec_sha256},
       {"config", header.config_sha256}});
}

std::string describe_activations(const std::string& path) {
  const Activations file = Activations::open(path);
  const std::set<std::int64_t> layers(file.layer().begin(), file.layer().end());
  return report(path, "activations",
                {{"stream", word_of(stream_words(), file.stream()) +
                                (file.names_stream() ? "" : ", the default: no attribute tells")},
                 {"tokens", std::to_string(file.tokens()) + " in " + std::to_string(file.sequences().size()) +
                                " sequences"},
                 {"heads", std::to_string(file.heads()) + " of size " + std::to_string(file.head_size()) +
                               " in " + std::to_string(layers.size()) + " layers"},
                 {"hidden size", file.hidden_size() ? std::to_string(*file.hidden_size())
                                                    : "not given: there will be no geometric null"},
                 {"type", file.is_float32() ? "float32" : "float64"}});
}

std::string describe_gram(const std::string& path) {
  const H5File file = H5File::open(path);
  Facts facts{{"schema", schema_of(file)}};
  for (const GramStream& stream : read_known_streams(file)) {
    std::string tokens;
    for (const std::string part : {"fit", "heldout"}) {
      if (part == "heldout" && !stream.heldout) continue;
      check_gram(file, stream, part);
      tokens +=
          ", n_" + part + " " +
          std::to_string(file.read_attribute<std::int64_t>(stream.name + "/" + part, "tokens").value_or(0));
    }
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
  return report(path, "Grams", facts);
}

}  // namespace headspan
