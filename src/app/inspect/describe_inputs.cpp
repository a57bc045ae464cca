#include "app/inspect/describe_inputs.h"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <set>
#include <sstream>
#include <vector>

#include "app/inspect/text_table.h"
#include "app/job/job_file.h"
#include "app/job/job_options.h"
#include "base/checked.h"
#include "base/printable.h"
#include "io/checkpoint/checkpoint.h"
#include "io/inputs/activations.h"
#include "io/inputs/manifest.h"
#include "io/inputs/tokens.h"
#include "model/types/read_config.h"
#include "model/weights/weight_loader.h"

namespace headspan {
namespace {

namespace fs = std::filesystem;

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

}  // namespace

Description describe_checkpoint(const std::string& path) {
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
  const Values values{{"model_type", config.model_type},
                      {"layers", config.layers},
                      {"hidden_size", config.hidden_size},
                      {"heads", config.heads},
                      {"kv_heads", config.kv_heads},
                      {"head_size", config.head_size},
                      {"vocab_size", config.vocab_size},
                      {"max_positions", config.max_positions},
                      {"rope_theta", config.rope.theta},
                      {"tensors", checkpoint.names().size()},
                      {"dtypes", dtypes},
                      {"bytes", bytes},
                      {"files", files},
                      {"warnings", checkpoint.warnings()}};
  return {path, "checkpoint folder", values, facts};
}

Description describe_tokens(const std::string& path) {
  const TokenFile file = TokenFile::open(path);
  const TokenScan scan = scan_tokens(file);
  const std::string sha256 = hash_token_file(path);
  const bool known = file.sidecar() && !file.sidecar()->sha256.empty();
  Values values{{"format", word_of(token_format_words(), file.format())},
                {"dtype", file.type().name},
                {"tokens", file.count()},
                {"documents", scan.documents > 0 ? Values(scan.documents) : Values()},
                {"largest_id", scan.largest},
                {"sha256", sha256},
                {"sidecar", nullptr}};
  if (const std::optional<TokenSidecar> sidecar = file.sidecar())
    values["sidecar"] = {{"path", sidecar->path},
                         {"tokenizer", sidecar->tokenizer},
                         {"vocab_size", sidecar->vocab_size ? Values(*sidecar->vocab_size) : Values()},
                         {"eos", sidecar->eos}};
  return {path,
          "token file",
          values,
          {{"format", word_of(token_format_words(), file.format()) + " of " + file.type().name},
           {"tokens", std::to_string(file.count())},
           {"documents", scan.documents > 0 ? std::to_string(scan.documents) : ""},
           {"largest id", std::to_string(scan.largest)},
           {"sidecar", sidecar_text(file.sidecar())},
           {"sha256", sha256 + (known ? ", as the sidecar says" : "")}}};
}

Description describe_manifest(const std::string& path) {
  const auto rows = read_manifest(path);
  std::vector<std::string> missing;
  for (const ManifestRow& row : rows)
    if (!fs::exists(row.path + "/config.json")) missing.push_back(row.name);
  const auto [first, last] = std::minmax_element(
      rows.begin(), rows.end(), [](const auto& a, const auto& b) { return a.step < b.step; });
  return {path,
          "manifest",
          {{"checkpoints", rows.size()},
           {"first_step", first->step},
           {"last_step", last->step},
           {"missing", missing}},
          {{"checkpoints", std::to_string(rows.size())},
           {"steps", std::to_string(first->step) + " to " + std::to_string(last->step)},
           {"folders", std::to_string(rows.size() - missing.size()) + " of " + std::to_string(rows.size()) +
                           " exist" + (missing.empty() ? "" : "; the first missing is " + missing[0])}}};
}

Description describe_job(const std::string& path) {
  const GivenKeys given = read_job_file(path);
  const auto holds = [&](const std::string& section) {
    const auto first = given.lower_bound(section + ".");
    return first != given.end() && first->first.rfind(section + ".", 0) == 0;
  };
  if (holds("theory")) {
    make_job(Command::theory, path, given);
    return {path, "job file of headspan theory", Values::object(), {}};
  }
  Description job{path, "job file", Values::object(), {}};
  const auto resolve = [&](Command command, const char* as) {
    const Job resolved = make_job(command, path, given);
    job.text += std::string("; ") + as + " as it will run:\n\n" + escaped_lines(to_ini(resolved, command));
    for (const JobOption& option : job_options())
      if (option.is_read_by(command)) job.values[row_of(command).name][option.name] = option.get(resolved);
  };
  if (holds("output") || !(holds("compress") || holds("evaluate"))) resolve(Command::study, "a study");
  if (holds("compress")) resolve(Command::calibrate, "calibrate");
  if (holds("evaluate")) resolve(Command::evaluate, "evaluate");
  return job;
}

Description describe_activations(const std::string& path) {
  const Activations file = Activations::open(path);
  const std::set<std::int64_t> layers(file.layer().begin(), file.layer().end());
  return {path,
          "activations",
          {{"stream", word_of(stream_words(), file.stream())},
           {"tokens", file.tokens()},
           {"sequences", file.sequences().size()},
           {"heads", file.heads()},
           {"head_size", file.head_size()},
           {"layers", layers.size()},
           {"hidden_size", file.hidden_size() ? Values(*file.hidden_size()) : Values()},
           {"dtype", file.is_float32() ? "float32" : "float64"}},
          {{"stream", word_of(stream_words(), file.stream()) +
                          (file.names_stream() ? "" : ", the default: no attribute tells")},
           {"tokens",
            std::to_string(file.tokens()) + " in " + std::to_string(file.sequences().size()) + " sequences"},
           {"heads", std::to_string(file.heads()) + " of size " + std::to_string(file.head_size()) + " in " +
                         std::to_string(layers.size()) + " layers"},
           {"hidden size", file.hidden_size() ? std::to_string(*file.hidden_size())
                                              : "not given: there will be no geometric null"},
           {"type", file.is_float32() ? "float32" : "float64"}}};
}

}  // namespace headspan
