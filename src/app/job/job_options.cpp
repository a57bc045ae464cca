#include "app/job/job_options.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "app/job/value_kind.h"

namespace headspan {
namespace {

constexpr double kUnbounded = std::numeric_limits<double>::infinity();
constexpr std::int64_t kLargestSize = std::int64_t{1} << 24;  // in [theory]; products of two fit 64 bits

template <class Section, class T>
JobOption option(const char* name, Section Job::*section, T Section::*member, const ValueKind<T>& kind,
                 const char* help) {
  return {name, kind.allowed, help,
          [=](Job& job, const std::string& text) { job.*section.*member = kind.read(text); },
          [=](const Job& job) { return kind.write(job.*section.*member); }};
}

ValueKind<GridShape> grid_shape() {
  return {"PxQ, rows x columns of a process grid such as 2x3",
          [](const std::string& text) {
            const std::size_t cross = text.find('x');
            if (cross == std::string::npos) throw BadValue("is not a grid");
            const auto size = integer(1, kMaxRanks);
            return GridShape{size.read(text.substr(0, cross)), size.read(text.substr(cross + 1))};
          },
          [](const GridShape& grid) { return to_string(grid); }};
}

/// "paper" or a relative tolerance, kept as text because the result uses it as a coordinate.
ValueKind<std::string> tolerance() {
  return {"paper or a number above 0 and below 1",
          [](const std::string& text) {
            if (text != "paper") positive(1).read(text);
            return text;
          },
          [](const std::string& value) { return value; }};
}

/// A list of paths, which may be empty.
ValueKind<Words> paths() {
  auto kind = list_of(text("paths"));
  kind.allowed = "a comma-separated list of paths";
  kind.read = [read = kind.read](const std::string& text) { return text.empty() ? Words() : read(text); };
  return kind;
}

std::vector<JobOption> model_options() {
  return {
      option("model.path", &Job::model, &Job::Model::path, text("a path"),
             "checkpoint folder in the Hugging Face layout"),
      option("model.manifest", &Job::model, &Job::Model::manifest, text("a path"),
             "instead of path: TSV of checkpoints, one unit each"),
      option("model.select", &Job::model, &Job::Model::select, list_of(text("all or names of the manifest")),
             "which rows of the manifest"),
      option(
          "model.name", &Job::model, &Job::Model::name, file_name(),
          "names the folder of the results; else the manifest's repository or the checkpoint's folder does"),
      option("model.init", &Job::model, &Job::Model::init, list_of(choice(weight_source_words())),
             "weights as stored, or drawn anew; with both a unit NAME has a second, NAME-random"),
      option("model.seed", &Job::model, &Job::Model::seed, integer(0), "seed of random weights"),
      option("model.dtype", &Job::model, &Job::Model::dtype, choice_or_auto(dtype_words()),
             "type in which the model runs; auto: the checkpoint's own")};
}

std::vector<JobOption> tokens_options() {
  return {option("tokens.path", &Job::tokens, &Job::Tokens::path, text("a path"), "token file"),
          option("tokens.format", &Job::tokens, &Job::Tokens::format, choice_or_auto(token_format_words()),
                 "layout; auto: by the NPY magic or an .idx file beside it, else raw"),
          option("tokens.dtype", &Job::tokens, &Job::Tokens::dtype, choice_or_auto(raw_id_words()),
                 "type of raw ids; auto: the sidecar's, else what the vocabulary needs"),
          option("tokens.sequence_length", &Job::tokens, &Job::Tokens::sequence_length, integer(1),
                 "longest sequence, in tokens; longer documents are cut"),
          option("tokens.limit", &Job::tokens, &Job::Tokens::limit, integer(1), "tokens to run"),
          option("tokens.eos", &Job::tokens, &Job::Tokens::eos, automatic(list_of(integer(0))),
                 "ids that end a document; auto: the sidecar's, else the model config's"),
          option("tokens.heldout", &Job::tokens, &Job::Tokens::heldout, number(0, 1),
                 "share of the sequences that are left out of the fits, to score them"),
          option("tokens.skip_first", &Job::tokens, &Job::Tokens::skip_first, integer(0),
                 "number of tokens at the start of each sequence that are left out of the statistics"),
          option("tokens.seed", &Job::tokens, &Job::Tokens::seed, integer(0),
                 "seed of the choice of held-out sequences")};
}

/// [activations] and [grams], which replace [model] and [tokens].
std::vector<JobOption> own_data_options() {
  return {option("activations.path", &Job::activations, &Job::Activations::path, text("a path"),
                 "instead of model and tokens: your own activations (HDF5)"),
          option("grams.paths", &Job::grams, &Job::Grams::paths, paths(),
                 "instead of model and tokens: saved Grams, which are merged")};
}

std::vector<JobOption> predict_options() {
  return {
      option("predict.streams", &Job::predict, &Job::Predict::streams, list_of(choice(stream_words())),
             "keys, queries, values, and z: what a query head gathers"),
      option("predict.capture", &Job::predict, &Job::Predict::capture, choice(capture_words()),
             "taken after the projection, after q_norm/k_norm, or after RoPE"),
      option("predict.references", &Job::predict, &Job::Predict::references, integer(1),
             "most heads that predict a head together; at most 5, or all heads of a stream if it has more"),
      option("predict.pool", &Job::predict, &Job::Predict::pool, integer(1),
             "best pairwise sources that forward selection chooses from; at most 16, or all heads of a "
             "stream if it has more"),
      option("predict.selection", &Job::predict, &Job::Predict::selection, list_of(choice(selection_words())),
             "how references are chosen"),
      option("predict.similarity", &Job::predict, &Job::Predict::similarity,
             or_none(list_of(choice(similarity_words()))), "measures of how alike two heads are, beside R2"),
      option("predict.mode", &Job::predict, &Job::Predict::mode, choice(predict_mode_words()),
             "paper: in-sample on all tokens (heldout 0, selection pairwise), with the paper's flags"),
      option("predict.precision", &Job::predict, &Job::Predict::precision,
             automatic(choice(precision_words())),
             "precision of the products that the Gram sums; auto: float64, or split where that is faster and "
             "as good")};
}

/// A pair of streams, SOURCE:TARGET.
ValueKind<StreamPair> stream_pair() {
  const ValueKind<Stream> stream = choice(stream_words());
  return {"SOURCE:TARGET, two of " + stream.allowed,
          [stream](const std::string& text) {
            const std::size_t colon = text.find(':');
            if (colon == std::string::npos) throw BadValue("is not allowed");
            const StreamPair pair{stream.read(text.substr(0, colon)), stream.read(text.substr(colon + 1))};
            if (pair.source == pair.target) throw BadValue("names one stream twice");
            return pair;
          },
          [stream](const StreamPair& pair) {
            return stream.write(pair.source) + ":" + stream.write(pair.target);
          }};
}

std::vector<JobOption> cross_options() {
  return {
      option("cross.streams", &Job::predict, &Job::Predict::cross, or_none(list_of(stream_pair())),
             "pairs of streams, as in q:k,z:v: heads of the first predict heads of the second"),
      option("cross.model", &Job::cross, &Job::Cross::model, text("a path"),
             "reference: a checkpoint, or its name in the manifest, that predicts each unit and vice versa"),
      option("cross.grams", &Job::cross, &Job::Cross::grams, text("a path"),
             "the reference's Grams of the same tokens, which need not be summed again then")};
}

/// [ceiling], [overlap] and [attention].
std::vector<JobOption> bound_options() {
  return {option("ceiling.enabled", &Job::ceiling, &Job::Ceiling::enabled, flag(),
                 "predict each head from all others together"),
          option("ceiling.scope", &Job::ceiling, &Job::Ceiling::scope, choice(ceiling_scope_words()),
                 "layer: all other heads of the layer; causal: all earlier heads, in order of layer and "
                 "head; or both"),
          option("overlap.enabled", &Job::overlap, &Job::Overlap::enabled, flag(),
                 "compute the overlap of the projections' weights"),
          option("overlap.projections", &Job::overlap, &Job::Overlap::projections,
                 list_of(choice(projected_stream_words())), "projections whose overlap is computed"),
          option("overlap.tolerances", &Job::overlap, &Job::Overlap::tolerances, list_of(tolerance()),
                 "tolerances of ranks; numbers are relative to the largest singular value of the projection"),
          option("overlap.effective", &Job::overlap, &Job::Overlap::effective, choice(gain_words()),
                 "without or with the gain of q_norm/k_norm"),
          option("attention.scores", &Job::attention, &Job::Attention::scores, flag(),
                 "measure what query heads attend to: induction, previous token, ...")};
}

std::vector<JobOption> theory_options() {
  return {option("theory.hidden_size", &Job::theory, &Job::Theory::hidden_size, integer(2, kLargestSize),
                 "m: rows of the projections"),
          option("theory.head_size", &Job::theory, &Job::Theory::head_size, integer(1, kLargestSize),
                 "k: columns of a head's projection"),
          option("theory.references", &Job::theory, &Job::Theory::references, integer(1, kLargestSize),
                 "n: heads that predict a head together"),
          option("theory.trials", &Job::theory, &Job::Theory::trials, integer(1, kLargestSize),
                 "number of draws"),
          option("theory.seed", &Job::theory, &Job::Theory::seed, integer(0), "seed of the draws"),
          option("theory.results", &Job::theory, &Job::Theory::results, paths(),
                 "results of models with random weights, whose R2 is printed too")};
}

/// A number above 0, at most 1.
ValueKind<double> share() {
  ValueKind<double> kind = positive(1.0000001);
  kind.allowed = "a number above 0, at most 1";
  kind.read = [read = kind.read](const std::string& text) {
    const double value = read(text);
    if (value > 1) throw BadValue("is out of range");
    return value;
  };
  return kind;
}

std::vector<JobOption> compress_options() {
  return {
      option("compress.streams", &Job::compress, &Job::Compress::streams,
             list_of(choice(cached_stream_words())),
             "which of keys and values are compressed; the other is kept whole"),
      option("compress.stored", &Job::compress, &Job::Compress::stored, share(),
             "share of the bytes of these streams that is kept"),
      option("compress.algorithm", &Job::compress, &Job::Compress::algorithm, choice(algorithm_words()),
             "latents in few bits; whole heads by what they cost; by the paper's text or code; all columns "
             "in few bits: as they are; each head rotated; as llama.cpp's q4_0 and q8_0 do it; as KIVI and "
             "OSCAR do it"),
      option("compress.bits", &Job::compress, &Job::Compress::bits, stored_bits(),
             "bits of a stored number; latent: auto (chosen for each), 16 (whole columns) or the same bands "
             "everywhere; quantise: 8, 4 or 3; hadamard: 5, 4 (auto), 3 or 2; kivi: 4 or 2 (auto); "
             "oscar: 4, 3 or 2 (auto)"),
      option("compress.references", &Job::compress, &Job::Compress::references, integer(1),
             "most kept heads that predict another"),
      option("compress.scope", &Job::compress, &Job::Compress::scope, choice(reference_scope_words()),
             "for algorithm = headspan: references in the same layer, or in earlier ones too"),
      option("compress.exact_first", &Job::compress, &Job::Compress::exact_first, integer(0),
             "number of tokens at the start of each document that are kept exactly"),
      option(
          "compress.ridge", &Job::compress, &Job::Compress::ridge, automatic(number(0, kUnbounded)),
          "added to the references' second moments, in units of their mean; auto: 0, dependent columns are "
          "dropped"),
      option("compress.effort", &Job::compress, &Job::Compress::effort, choice(effort_words()),
             "quick: one run over the tokens; full: also what units = measured and, for latent, own_text = "
             "12288 do; auto: full unless the model is large"),
      option("compress.units", &Job::compress, &Job::Compress::units, choice_or_auto(loss_units_words()),
             "how layers are weighed: by the residual stream, or by the loss that compressing each is "
             "measured to cause"),
      option("compress.own_text", &Job::compress, &Job::Compress::own_text, automatic(integer(0)),
             "tokens that the model generates itself and is calibrated on too"),
      option("compress.plan", &Job::compress, &Job::Compress::plan, text("a path"),
             "the plan that is written")};
}

std::vector<JobOption> evaluate_options() {
  return {
      option("evaluate.plan", &Job::evaluate, &Job::Evaluate::plan, text("a path"),
             "compression plan; not needed with cache = full"),
      option("evaluate.cache", &Job::evaluate, &Job::Evaluate::cache, choice(cache_words()),
             "what the plan stores; everything, with the plan's keys and values; or everything as it is"),
      option("evaluate.exact_recent", &Job::evaluate, &Job::Evaluate::exact_recent, integer(0),
             "number of tokens at the end of each sequence that are kept exactly"),
      option("evaluate.prefill", &Job::evaluate, &Job::Evaluate::prefill, choice(prefill_words()),
             "what prompts attend to: to what is stored of them, or to their keys and values as they are; "
             "each token of a text then counts as the first one behind a prompt"),
      option("evaluate.texts", &Job::evaluate, &Job::Evaluate::texts, paths(),
             "token files whose loss is measured, by the rules of [tokens]"),
      option("evaluate.requests", &Job::evaluate, &Job::Evaluate::requests, text("a path"),
             "JSONL of continuations to be scored"),
      option("evaluate.generate", &Job::evaluate, &Job::Evaluate::generate, text("a path"),
             "JSONL of contexts to be continued, greedily"),
      option("evaluate.answers", &Job::evaluate, &Job::Evaluate::answers, text("a path"),
             "JSONL that is written: the answers, in the order of requests, then generate"),
      option("evaluate.batch", &Job::evaluate, &Job::Evaluate::batch, automatic(integer(1)),
             "sequences that a rank runs at once"),
      option("evaluate.reference", &Job::evaluate, &Job::Evaluate::reference, flag(),
             "run the full cache too, for divergence and speed"),
      option("evaluate.summary", &Job::evaluate, &Job::Evaluate::summary, text("a path"),
             "summary that is written (JSON)")};
}

/// FIRST:END, the indices from FIRST on, before END.
ValueKind<Range> index_range() {
  return {"FIRST:END, such as 0:128",
          [](const std::string& text) {
            const std::size_t colon = text.find(':');
            if (colon == std::string::npos) throw BadValue("is not a range");
            const auto index = integer(0);
            const std::int64_t first = index.read(text.substr(0, colon)),
                               end = index.read(text.substr(colon + 1));
            if (end <= first) throw BadValue("is an empty range");
            return Range{first, end - first};
          },
          [](const Range& range) {
            return std::to_string(range.first) + ":" + std::to_string(range.first + range.count);
          }};
}

std::vector<JobOption> archive_options() {
  return {
      option("archive.algorithm", &Job::archive, &Job::Archive::algorithm, choice(archive_algorithm_words()),
             "how a codec is made; kvtc: as others do, to compare"),
      option("archive.exact_first", &Job::archive, &Job::Archive::exact_first, integer(0),
             "number of tokens at the start of each document that archives keep as they are"),
      option("archive.maps", &Job::archive, &Job::Archive::maps, share(),
             "share of the weights' bytes that the bases of a codec may take"),
      option("archive.group", &Job::archive, &Job::Archive::group, automatic(integer(1)),
             "layers that are coded together; auto: as many as maps allows, at most 16"),
      option("archive.effort", &Job::archive, &Job::Archive::effort, choice(effort_words()),
             "quick: errors are weighed by a formula; full: by gradients of the model's loss, and the model "
             "generates text to calibrate on too; auto: by the model's size"),
      option("archive.own_text", &Job::archive, &Job::Archive::own_text, automatic(integer(0)),
             "tokens that the model generates to calibrate on too; auto: by archive.effort"),
      option("archive.codec", &Job::archive, &Job::Archive::codec, text("a path"),
             "calibrate: the codec that is written; encode, decode: the codec"),
      option("archive.input", &Job::archive, &Job::Archive::input, text("a path"),
             "encode: keys and values (safetensors or HDF5); decode: the archive"),
      option("archive.output", &Job::archive, &Job::Archive::output, text("a path"),
             "encode: the archive; decode: keys and values (.safetensors, .h5 or .hdf5)"),
      option("archive.bits", &Job::archive, &Job::Archive::bits, positive(kUnbounded),
             "bits for a number, by the curve of the codec"),
      option("archive.kl", &Job::archive, &Job::Archive::kl, automatic(positive(kUnbounded)),
             "instead of bits: what the model may lose, in nats per token, by the curve of the codec"),
      option("archive.first_position", &Job::archive, &Job::Archive::first_position, integer(0),
             "position of the first token"),
      option("archive.documents", &Job::archive, &Job::Archive::documents, list_of(integer(0)),
             "tokens at which documents begin, whose first ones are kept as they are"),
      option("archive.tokens", &Job::archive, &Job::Archive::tokens, automatic(index_range()),
             "tokens that are decoded; auto: all"),
      option("archive.layers", &Job::archive, &Job::Archive::layers, automatic(index_range()),
             "layers that are decoded; auto: all")};
}

std::vector<JobOption> run_options() {
  return {
      option("run.device", &Job::run, &Job::Run::device, choice_or_auto(device_words()), "what computes"),
      option("run.groups", &Job::run, &Job::Run::groups, integer(1),
             "groups of ranks, each of which works on its own unit"),
      option("run.tensor_parallel", &Job::run, &Job::Run::tensor_parallel, automatic(integer(1)),
             "ranks that share one copy of the model; auto: the fewest whose memory holds it"),
      option("run.grid", &Job::run, &Job::Run::grid, automatic(grid_shape()), "process grid of the Gram"),
      option("run.batch_tokens", &Job::run, &Job::Run::batch_tokens, automatic(integer(1)),
             "tokens of a forward pass"),
      option("run.save_minutes", &Job::run, &Job::Run::save_minutes, number(0, kUnbounded),
             "minutes between saves of the state of a long unit; 0: none"),
      option("run.time_limit", &Job::run, &Job::Run::time_limit, number(0, kUnbounded),
             "minutes after which the state is saved and the run ends with exit code 3; 0: none"),
      option("run.heartbeat_seconds", &Job::run, &Job::Run::heartbeat_seconds, number(0, 1e6),
             "seconds without a sign of life after which a rank counts as lost, and the job ends; 0: never"),
      option("run.memory_gib", &Job::run, &Job::Run::memory_gib, automatic(positive(kUnbounded)),
             "GiB that a rank may use; auto: its share of the node"),
      option("run.gpu_memory_gib", &Job::run, &Job::Run::gpu_memory_gib, automatic(positive(kUnbounded)),
             "GiB of a GPU that a rank may use; auto: its share of what is free")};
}

std::vector<JobOption> output_options() {
  return {
      option("output.directory", &Job::output, &Job::Output::directory, text("a path"), "where results go"),
      option("output.save_gram", &Job::output, &Job::Output::save_gram, flag(),
             "also write CHECKPOINT.gram.h5"),
      option("output.overwrite", &Job::output, &Job::Output::overwrite, flag(),
             "replace results of another job")};
}

}  // namespace

const std::vector<JobOption>& job_options() {
  static const std::vector<JobOption> options = [] {
    std::vector<JobOption> all;
    for (const auto& part : {model_options(), tokens_options(), own_data_options(), predict_options(),
                             cross_options(), bound_options(), theory_options(), compress_options(),
                             evaluate_options(), archive_options(), run_options(), output_options()})
      all.insert(all.end(), part.begin(), part.end());
    return all;
  }();
  return options;
}

bool JobOption::is_read_by(Command command) const {
  static const std::set<std::string> of_many{"model.manifest", "model.select", "model.init", "model.seed"};
  static const std::map<std::string, std::set<Command>> of_some{
      {"archive.algorithm", {Command::archive_calibrate}},
      {"archive.exact_first", {Command::archive_calibrate}},
      {"archive.maps", {Command::archive_calibrate}},
      {"archive.group", {Command::archive_calibrate}},
      {"archive.effort", {Command::archive_calibrate}},
      {"archive.own_text", {Command::archive_calibrate}},
      {"archive.input", {Command::archive_encode, Command::archive_decode}},
      {"archive.output", {Command::archive_encode, Command::archive_decode}},
      {"archive.bits", {Command::archive_encode, Command::evaluate}},
      {"archive.kl", {Command::archive_encode, Command::evaluate}},
      {"archive.first_position", {Command::archive_encode}},
      {"archive.documents", {Command::archive_encode}},
      {"archive.tokens", {Command::archive_decode}},
      {"archive.layers", {Command::archive_decode}}};
  const CommandRow& row = row_of(command);
  if (const auto found = of_some.find(name); found != of_some.end() && found->second.count(command) == 0)
    return false;
  return row.reads(section()) && (row.many_checkpoints || of_many.count(name) == 0);
}

const JobOption* find_job_option(const std::string& name) {
  const auto& options = job_options();
  const auto found =
      std::find_if(options.begin(), options.end(), [&](const JobOption& o) { return o.name == name; });
  return found != options.end() ? &*found : nullptr;
}

std::string job_options_help(Command command) {
  const Job defaults;
  std::string text;
  std::string section;
  for (const JobOption& option : job_options()) {
    if (!option.is_read_by(command)) continue;
    if (option.section() != section) {
      section = option.section();
      text += "\n[" + section + "]\n";
    }
    const std::string value = option.get(defaults);
    text += "  " + option.key() + (value.empty() ? "" : " = " + value) + "\n      " + option.help + " (" +
            option.allowed + ")\n";
  }
  return text;
}

}  // namespace headspan
