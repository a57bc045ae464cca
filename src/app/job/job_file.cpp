#include "app/job/job_file.h"

#include <algorithm>
#include <boost/program_options.hpp>
#include <cstdlib>
#include <initializer_list>
#include <sstream>

#include "app/job/job_options.h"
#include "app/job/unknown_key.h"
#include "app/job/value_kind.h"
#include "base/error.h"
#include "base/input_file.h"
#include "base/printable.h"

namespace headspan {
namespace {

namespace po = boost::program_options;

constexpr std::size_t kLargestJobFile = 1 << 20;

/// Returns the text with lines that start with ; emptied: Boost knows only comments that start with #.
std::string without_semicolon_lines(const std::string& text) {
  std::istringstream lines(text);
  std::string kept;
  for (std::string line; std::getline(lines, line);) {
    const std::size_t first = line.find_first_not_of(" \t");
    kept += (first != std::string::npos && line[first] == ';' ? "" : line) + "\n";
  }
  return kept;
}

/// Checks and completes a job. Errors name the origin and the text of the key as the user gave them.
class Resolver {
 public:
  Resolver(const std::string& name, const GivenKeys& given, Job* job)
      : name_(name), given_(given), job_(*job) {}

  void resolve_study() const {
    check_inputs();
    apply_mode();
    check_predict();
    if (job_.output.directory.empty()) missing("output.directory", "give the folder for the results");
  }
  void check_bits() const;
  void resolve_calibrate() const;
  void resolve_evaluate() const;
  void resolve_recoded() const;
  void resolve_archive(Command command) const;

 private:
  void check_rate() const;
  void check_runs_on_cpus() const;
  void check_inputs() const;
  void apply_mode() const;
  void check_predict() const;
  void check_one_checkpoint() const;

  /// Returns whether the key has a value. An empty text on the command line unsets the path of a job file.
  bool has(const std::string& key) const {
    const auto found = given_.find(key);
    return found != given_.end() && !found->second.text.empty();
  }
  [[noreturn]] void refuse(const std::string& key, const std::string& wrong, const std::string& right) const {
    const auto found = given_.find(key);
    const bool is_given = found != given_.end();
    throw InputError(is_given ? found->second.origin : name_, key,
                     is_given ? printable(found->second.text) : find_job_option(key)->get(job_), wrong,
                     right);
  }
  [[noreturn]] void missing(const std::string& key, const std::string& right) const {
    throw InputError(name_, key, "", "is missing", right);
  }

  const std::string& name_;
  const GivenKeys& given_;
  Job& job_;
};

void Resolver::check_inputs() const {
  std::string source;
  for (const char* key : {"model.path", "model.manifest", "activations.path", "grams.paths"}) {
    if (has(key) && !source.empty()) refuse(key, "is given beside " + source, "give one of the two");
    if (has(key)) source = key;
  }
  if (source.empty())
    throw InputError(name_, "", "", "names no input",
                     "give model.path, model.manifest, activations.path or grams.paths");
  const bool has_model = source.substr(0, 6) == "model.";
  if (has_model && !has("tokens.path")) missing("tokens.path", "a model needs a token file");
  if (!has_model && has("tokens.path"))
    refuse("tokens.path", "is given beside " + source, "give one of the two");
  if (!has_model && job_.attention.scores)
    refuse("attention.scores", "runs a model, and " + source + " is none", "give a model, or leave it out");
  if (!has_model && !job_.predict.cross.empty())
    refuse("cross.streams", "takes two streams of a model, and " + source + " is none",
           "give a model, or leave it out");
  if (!has_model && has("cross.model"))
    refuse("cross.model", "runs beside a model, and " + source + " is none", "give a model, or leave it out");
  if (has("cross.grams") && !has("cross.model"))
    refuse("cross.grams", "holds the Grams of a reference, and none is given",
           "give cross.model, or leave it out");
  if (source != "model.manifest" && job_.model.select != Words{"all"})
    refuse("model.select", "selects from a manifest, and none is given",
           "give model.manifest or leave it out");
}

void Resolver::apply_mode() const {
  if (job_.predict.mode != PredictMode::paper) return;
  const std::vector<SelectionRule> paper_selection{SelectionRule::pairwise};
  const char* wrong = "contradicts predict.mode = paper";
  if (has("tokens.heldout") && job_.tokens.heldout != 0)
    refuse("tokens.heldout", wrong, "leave it out, or give 0");
  if (has("predict.selection") && job_.predict.selection != paper_selection)
    refuse("predict.selection", wrong, "leave it out, or give pairwise");
  job_.tokens.heldout = 0;
  job_.predict.selection = paper_selection;
}

void Resolver::check_predict() const {
  const std::vector<SelectionRule>& selection = job_.predict.selection;
  const bool forward = std::count(selection.begin(), selection.end(), SelectionRule::forward) > 0;
  if (forward && job_.predict.pool < job_.predict.references)
    refuse("predict.pool", "is smaller than predict.references = " + std::to_string(job_.predict.references),
           "forward selection chooses the references from the pool");
  const std::optional<Dtype>& dtype = job_.model.dtype;
  const bool half = dtype != Dtype::float64 && dtype != Dtype::float32 && job_.activations.path.empty();
  if (job_.predict.precision == Precision::bfloat16 && !half)
    refuse("predict.precision", "is allowed only with a forward in half precision",
           "float64, float32 or split, or model.dtype bfloat16 or float16");
}

/// Throws InputError for keys that do not suit a command that runs the stored weights of a single checkpoint.
void Resolver::check_one_checkpoint() const {
  const char* right = "give model.path, and leave this to study";
  if (job_.model.init != std::vector{WeightSource::pretrained})
    refuse("model.init", "draws weights, and stored ones are run", right);
  if (has("model.manifest")) refuse("model.manifest", "names many checkpoints, and one is run", right);
  if (job_.model.select != Words{"all"}) refuse("model.select", "selects from a manifest", right);
}

/// Throws InputError unless compress.bits suits compress.algorithm.
void Resolver::check_bits() const {
  using Algorithm = CompressionAlgorithm;
  const Job::Compress& compress = job_.compress;
  const StoredBits& bits = compress.bits;
  const Algorithm algorithm = compress.algorithm;
  const std::string what = "is not for compress.algorithm = " + word_of(algorithm_words(), algorithm);
  const auto is_one_of = [&](std::initializer_list<int> widths) {
    return bits.width && std::find(widths.begin(), widths.end(), *bits.width) != widths.end();
  };
  if (algorithm == Algorithm::quantise && !is_one_of({8, 4, 3}))
    refuse("compress.bits", what, "give 8, 4 or 3");
  if (algorithm == Algorithm::hadamard && !bits.is_automatic() && !is_one_of({5, 4, 3, 2}))
    refuse("compress.bits", what, "give 5, 4, 3 or 2");
  if (algorithm == Algorithm::kivi && !bits.is_automatic() && !is_one_of({4, 2}))
    refuse("compress.bits", what, "give 4 or 2");
  if (algorithm == Algorithm::oscar && !bits.is_automatic() && !is_one_of({4, 3, 2}))
    refuse("compress.bits", what, "give 4, 3 or 2");
  if (algorithm == Algorithm::latent && bits.is_quantised())
    refuse("compress.bits", what, "give auto, 16 or bands");
  const bool takes_bits = algorithm == Algorithm::quantise || algorithm == Algorithm::hadamard ||
                          algorithm == Algorithm::kivi || algorithm == Algorithm::oscar ||
                          algorithm == Algorithm::latent;
  if (!takes_bits && !bits.is_automatic()) refuse("compress.bits", what, "leave it out");
}

void Resolver::resolve_calibrate() const {
  using Algorithm = CompressionAlgorithm;
  const Job::Compress& compress = job_.compress;
  const bool rounds = rounds_columns(compress.algorithm), latent = compress.algorithm == Algorithm::latent;
  const bool measured = compress.units == LossUnits::measured;
  const bool calibrates = is_calibrated(compress.algorithm), grams = has("grams.paths");
  check_runs_on_cpus();
  check_one_checkpoint();
  if (!grams && !has("model.path"))
    missing("model.path", "give the checkpoint that is to be compressed, or grams.paths");
  if (!grams && !has("tokens.path") && calibrates) missing("tokens.path", "give the tokens to calibrate on");
  if (grams && has("tokens.path"))
    refuse("tokens.path", "is given beside grams.paths", "give one of the two");
  if (grams && calibrates && rounds)
    refuse("compress.algorithm", "runs the model, and Grams are given",
           "give model.path and tokens.path in place of grams.paths");
  if (!has("compress.plan")) missing("compress.plan", "give the file for the plan");
  if (grams && measured)
    refuse("compress.units", "runs the model, and Grams are given",
           "give model.path and tokens.path in place of grams.paths, or residual");
  if (measured && !latent && compress.algorithm != Algorithm::headspan)
    refuse("compress.units", "is for compress.algorithm = latent or headspan", "leave it out");
  const std::string algorithm = word_of(algorithm_words(), compress.algorithm);
  if (grams && compress.effort == Effort::full)
    refuse("compress.effort", "runs the model, and Grams are given",
           "give model.path and tokens.path in place of grams.paths, or leave it out");
  if (compress.own_text.value_or(0) > 0 && (grams || !calibrates))
    refuse("compress.own_text",
           grams ? "runs the model, and Grams are given" : "calibrates, and " + algorithm + " does not",
           "leave it out");
  check_bits();
  if (has("compress.stored") && (rounds || !compress.bits.bands.empty()))
    refuse("compress.stored", "follows from compress.bits here", "leave it out");
}

void Resolver::resolve_evaluate() const {
  const Job::Evaluate& evaluate = job_.evaluate;
  check_one_checkpoint();
  if (!has("model.path")) missing("model.path", "give the checkpoint that is run");
  if (!has("evaluate.plan") && !has("archive.codec") && evaluate.cache != CacheKind::full)
    missing("evaluate.plan", "give a plan, a codec (archive.codec), or evaluate.cache = full");
  if (has("archive.codec")) resolve_recoded();
  if (evaluate.prefill == Prefill::exact && evaluate.cache != CacheKind::compressed)
    refuse("evaluate.prefill", "is for evaluate.cache = compressed", "leave it out");
  const bool asks = has("evaluate.requests") || has("evaluate.generate");
  if (!asks && !has("evaluate.texts"))
    missing("evaluate.texts", "give texts, requests or contexts to generate from");
  if (asks && !has("evaluate.answers")) missing("evaluate.answers", "give the file for the answers");
}

/// Checks an evaluation of a codec.
void Resolver::resolve_recoded() const {
  const Job::Evaluate& evaluate = job_.evaluate;
  if (has("evaluate.plan")) refuse("archive.codec", "is given beside evaluate.plan", "give one of the two");
  if (evaluate.cache == CacheKind::simulated)
    refuse("evaluate.cache", "is not for a codec", "leave it out, or give full");
  if (evaluate.exact_recent > 0) refuse("evaluate.exact_recent", "is not for a codec", "leave it out");
  check_rate();
}

void Resolver::check_runs_on_cpus() const {
  if (job_.run.device == ComputeDevice::cuda)
    refuse("run.device", "is for study and evaluate", "leave it out, or give cpu");
}

void Resolver::check_rate() const {
  if (has("archive.bits") && job_.archive.kl)
    refuse("archive.kl", "is given beside archive.bits", "give one of the two");
}

void Resolver::resolve_archive(Command command) const {
  for (const auto& [key, value] : given_)  // a job file may be that of all three commands
    if (value.origin == kCommandLine && !find_job_option(key)->is_read_by(command))
      refuse(key, std::string("is not for ") + row_of(command).name, "leave it out");
  if (command == Command::archive_calibrate) {
    check_runs_on_cpus();
    check_one_checkpoint();
    if (!has("model.path"))
      missing("model.path", "give the checkpoint whose keys and values are to be coded");
    if (!has("tokens.path")) missing("tokens.path", "give the tokens to calibrate on");
    if (!has("archive.codec")) missing("archive.codec", "give the file for the codec");
    return;
  }
  const bool encodes = command == Command::archive_encode;
  if (!has("archive.codec")) missing("archive.codec", "give the codec of the model");
  if (!has("archive.input"))
    missing("archive.input", encodes ? "give the file of keys and values" : "give the archive");
  if (!has("archive.output"))
    missing("archive.output",
            encodes ? "give the file for the archive" : "give the file for keys and values");
  check_rate();
}

}  // namespace

std::string to_ini(const Job& job, Command command) {
  std::string text;
  std::string section;
  for (const JobOption& option : job_options()) {
    const std::string value = option.get(job);
    if (value.empty() || !option.is_read_by(command)) continue;
    if (option.section() != section) text += (text.empty() ? "[" : "\n[") + option.section() + "]\n";
    section = option.section();
    text += option.key() + " = " + value + "\n";
  }
  return text;
}

GivenKeys read_job_text(const std::string& name, const std::string& text) {
  std::istringstream stream(without_semicolon_lines(text));
  GivenKeys given;
  try {
    const auto parsed = po::parse_config_file(stream, po::options_description(), true);
    for (const auto& option : parsed.options) {
      const std::string value = option.value.empty() ? "" : option.value.front();
      if (find_job_option(option.string_key) == nullptr) refuse_unknown_key(name, option.string_key, value);
      if (!given.emplace(option.string_key, GivenValue{name, value}).second)
        throw InputError(name, option.string_key, printable(value), "is given twice",
                         "keep one of the two lines");
    }
  } catch (const po::invalid_config_file_syntax& error) {
    throw InputError(name, "", "", "the line '" + printable(error.tokens()) + "' says nothing",
                     "[section], key = value, or # and a comment");
  }
  return given;
}

GivenKeys read_job_file(const std::string& path) {
  const std::string text = read_small_file(path);
  if (text.size() > kLargestJobFile)
    throw InputError(path, "", "", "is too large for a job file", "at most 1 MiB");
  return read_job_text(path, text);
}

namespace {

/// Returns a job with the given keys set. Throws InputError for a key that a job file of the command cannot
/// have.
Job set_keys(const CommandRow& command, const GivenKeys& given) {
  Job job;
  for (const JobOption& option : job_options()) {
    const auto found = given.find(option.name);
    if (found == given.end()) continue;
    const auto& [origin, text] = found->second;
    if (!command.accepts(option.section()))
      throw InputError(origin, option.name, printable(text), std::string("is not for ") + command.name,
                       std::string("headspan ") + command.name + " --help lists the keys");
    if (!text.empty()) job.given.insert(option.name);
    try {
      option.set(job, text);
    } catch (const BadValue& error) {
      throw InputError(origin, option.name, text.empty() ? "(nothing)" : printable(text), error.what(),
                       "allowed: " + option.allowed);
    }
  }
  return job;
}

void check_theory(const Job::Theory& theory, const GivenKeys& given) {
  if (theory.references * theory.head_size < theory.hidden_size) return;
  const auto found = given.find("theory.references");
  throw InputError(found != given.end() ? found->second.origin : "", "theory.references",
                   std::to_string(theory.references),
                   "heads of " + std::to_string(theory.head_size) + " coordinates fill the hidden size of " +
                       std::to_string(theory.hidden_size),
                   "references x head_size must be smaller than hidden_size");
}

}  // namespace

Job make_job(Command command, const std::string& name, const GivenKeys& given) {
  Job job = set_keys(row_of(command), given);
  const Resolver resolver(name, given, &job);
  switch (command) {
    case Command::study:
    case Command::plan:
      resolver.resolve_study();
      break;
    case Command::calibrate:
      resolver.resolve_calibrate();
      break;
    case Command::evaluate:
      resolver.resolve_evaluate();
      break;
    case Command::theory:
      check_theory(job.theory, given);
      break;
    case Command::archive_calibrate:
    case Command::archive_encode:
    case Command::archive_decode:
      resolver.resolve_archive(command);
      break;
    case Command::inspect:
      break;
  }
  return job;
}

}  // namespace headspan
