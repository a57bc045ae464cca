#include "app/sources/merge_grams.h"

#include <algorithm>
#include <cmath>

#include "app/job/job_rules.h"
#include "app/plan/matrix_sizes.h"
#include "base/printable.h"
#include "io/checkpoint/content_digest.h"
#include "io/outputs/gram_check.h"

namespace headspan {
namespace {

/// Reads one Gram of a file into blocks of this run's grid. Throws AgreedError for values that no Gram has.
HeadGram load(const H5File& file, const GramStream& stream, const std::string& part, const Grid& grid) {
  HeadGram gram{0,
                {},
                Matrix(grid, stream.columns(), stream.columns(),
                       gram_block(grid.shape(), stream.heads(), stream.head_size))};
  GramPart read = read_gram(file, stream, part, gram.matrix);
  check_gram(file.path(), stream.name + "/" + part, read, stream.head_size);
  gram.tokens = read.tokens;
  gram.mean = std::move(read.mean);
  return gram;
}

/// Throws InputError unless both streams have the same heads, captured and computed in the same way: only
/// then can their Grams be added.
void check_same(const std::string& path, const GramStream& stream, const GramStream& first) {
  const auto differs = [&](const std::string& what, const std::string& here, const std::string& there) {
    if (here != there)
      throw InputError(path, stream.name + " " + what, here, "the files before have " + there,
                       "merge Grams of one model and job");
  };
  differs("stream", stream.name, first.name);
  differs("capture", stream.capture, first.capture);
  differs("forward_dtype", stream.forward_dtype, first.forward_dtype);
  differs("precision", stream.precision, first.precision);
  differs("skip_first", std::to_string(stream.skip_first), std::to_string(first.skip_first));
  differs("heldout part", stream.heldout ? "present" : "absent", first.heldout ? "present" : "absent");
  if (stream.layer != first.layer || stream.head != first.head || stream.head_size != first.head_size ||
      stream.hidden_size != first.hidden_size)
    throw InputError(path, stream.name, "", "has other heads than the files before",
                     "merge Grams of one model");
}

HeadLayout layout_of(const GramStream& stream) {
  return {stream.head_size, stream.layer, stream.head, stream.hidden_size};
}

GramFiles read_file(const std::string& path) {
  const H5File file = H5File::open(path);
  const auto text = [&](const char* name) {
    return file.read_attribute<std::string>("/", name).value_or("");
  };
  GramFiles found;
  found.streams = read_known_streams(file);
  found.fit_tokens =
      file.read_attribute<std::int64_t>(found.streams.front().name + "/fit", "tokens").value_or(0);
  found.model_type = text("model_type");
  found.config_sha256 = text("config_sha256");
  found.init = file.read_attribute<std::string>("/", "init").value_or("pretrained");
  found.weights_digest = text("weights_digest");
  found.tokens_path = text("tokens_path");
  found.tokens_sha256 = text("tokens_sha256");
  found.tokens_mismatch = escaped(text("tokens_mismatch"));
  found.attention = read_attention_sizes(file);
  if (!found.attention) found.lacks_attention = path;
  return found;
}

/// Adds the description of another file. Throws InputError if it cannot be merged with those before.
void add(GramFiles& files, const std::string& path, const GramFiles& more) {
  if (more.config_sha256 != files.config_sha256)
    throw InputError(path, "config_sha256", more.config_sha256.substr(0, 12),
                     "the files before have " + files.config_sha256.substr(0, 12),
                     "merge Grams of one model");
  if (more.init != files.init)
    throw InputError(path, "init", printable(more.init), "the files before have " + printable(files.init),
                     "merge Grams of one checkpoint");
  if (more.weights_digest.empty() || files.weights_digest.empty())
    files.weights_digest.clear();
  else if (more.weights_digest != files.weights_digest)
    throw InputError(path, "weights_digest", more.weights_digest.substr(0, 12),
                     "the files before have " + files.weights_digest.substr(0, 12),
                     "merge Grams of one checkpoint");
  if (more.streams.size() != files.streams.size())
    throw InputError(path, "", "", "has other streams than the files before", "merge Grams of one job");
  for (std::size_t s = 0; s < more.streams.size(); ++s) check_same(path, more.streams[s], files.streams[s]);
  files.fit_tokens += more.fit_tokens;
  files.tokens_path += "," + more.tokens_path;
  files.tokens_sha256 += "," + more.tokens_sha256;
  if (files.tokens_mismatch.find(more.tokens_mismatch) == std::string::npos)
    files.tokens_mismatch += (files.tokens_mismatch.empty() ? "" : ", ") + more.tokens_mismatch;
  if (files.lacks_attention.empty()) files.lacks_attention = more.lacks_attention;
}

/// Turns the means of `sum` into means over the tokens of both. Throws InputError if the weights differ.
void merge(const std::string& path, const GramAttention& more, GramAttention& sum) {
  double difference = 0, largest = 0;
  for (std::size_t i = 0; i < sum.output.size() && i < more.output.size(); ++i) {
    difference = std::max(difference, std::abs(more.output[i] - sum.output[i]));
    largest = std::max(largest, std::abs(sum.output[i]));
  }
  if (more.output.size() != sum.output.size() || !(difference <= 1e-9 * largest))
    throw InputError(path, "attention/output", "", "is that of other weights than in the files before",
                     "merge Grams of one checkpoint");
  const std::int64_t tokens = sum.tokens + more.tokens;
  const double share =
      static_cast<double>(more.tokens) / static_cast<double>(std::max<std::int64_t>(1, tokens));
  const auto mix = [&](std::vector<double>& ours, const std::vector<double>& theirs) {
    for (std::size_t i = 0; i < ours.size(); ++i) ours[i] += share * (theirs[i] - ours[i]);
  };
  mix(sum.scale, more.scale);
  mix(sum.query, more.query);
  sum.tokens = tokens;
}

/// Throws InputError if a key of the job contradicts what the file says about how its Grams were made. Grams
/// of the user's own activations do not say where those were captured.
void check_given(const Job& job, const GramStream& stream) {
  const auto check = [&](const char* key, const std::string& said, const std::string& found) {
    if (job.given.count(key) > 0 && said != found)
      throw InputError("", key, said, job.grams.paths.front() + " has " + found + " for " + stream.name,
                       "leave it out, or give " + found);
  };
  if (value_of(capture_words(), stream.capture))
    check("predict.capture", word_of(capture_words(), job.predict.capture), stream.capture);
  if (job.predict.precision)
    check("predict.precision", word_of(precision_words(), *job.predict.precision), stream.precision);
}

/// Reads and merges the moments of attention of all files. Collective over the group.
GramAttention merged_attention(const Words& paths, const Comm& group) {
  std::optional<GramAttention> sum;
  for (const std::string& path : paths) {
    const H5File file = H5File::open(group, path);
    GramAttention attention = read_attention(file, group);
    agree(group, [&] {
      check_attention(path, attention);
      if (sum) merge(path, attention, *sum);
    });
    if (!sum) sum = std::move(attention);
  }
  return std::move(*sum);
}

}  // namespace

GramFiles read_gram_files(const Words& paths, const std::vector<Stream>& streams) {
  GramFiles files = read_file(paths.front());
  for (auto path = paths.begin() + 1; path != paths.end(); ++path) add(files, *path, read_file(*path));
  const auto is_unwanted = [&](const GramStream& stream) {
    return std::find(streams.begin(), streams.end(), value_of(stream_words(), stream.name)) == streams.end();
  };
  files.streams.erase(std::remove_if(files.streams.begin(), files.streams.end(), is_unwanted),
                      files.streams.end());
  if (files.streams.empty())
    throw InputError(paths.front(), "", "", "holds none of the streams of predict.streams",
                     "see what it holds with headspan inspect");
  return files;
}

void check_grams(const Job& job, const GridShape& grid) {
  std::int64_t heads = 0;
  for (const GramStream& stream : read_gram_files(job.grams.paths, job.predict.streams).streams) {
    check_given(job, stream);
    heads = std::max(heads, stream.heads());
    check_layer_sizes(job.ceiling, job.run, layer_sizes(layout_of(stream)), grid);
  }
  check_references(job.predict, heads);
}

UnitEvidence merge_grams(const Words& paths, const Job::Predict& predict, const ProcessLayout& processes,
                         bool attention) {
  const Comm& group = processes.group();
  GramFiles files;
  UnitEvidence evidence;
  agree(group, [&] {
    files = read_gram_files(paths, predict.streams);
    if (group.is_root()) evidence.input_digest = files_digest(paths);
  });
  evidence.input_digest = group.broadcast(evidence.input_digest, 0);
  evidence.weights_digest = files.weights_digest;
  evidence.sample.mismatch = files.tokens_mismatch;
  evidence.model_type = files.model_type;
  evidence.config_sha256 = files.config_sha256;
  if (attention && files.lacks_attention.empty()) evidence.attention = merged_attention(paths, group);
  for (const GramStream& stream : files.streams) {
    const StreamOrigin origin = stream_origin(stream);
    evidence.streams.push_back(
        {origin, layout_of(stream), fit_rules(predict.mode, origin.forward_dtype, origin.precision)});
  }
  for (const std::string& path : paths) {
    const H5File file = H5File::open(group, path);
    for (std::size_t s = 0; s < files.streams.size(); ++s) {
      const GramStream& stream = files.streams[s];
      StreamGrams grams{load(file, stream, "fit", processes.grid()), {}};
      if (stream.heldout) grams.heldout = load(file, stream, "heldout", processes.grid());
      std::optional<StreamGrams>& sum = evidence.streams[s].grams;
      if (!sum) {
        sum = std::move(grams);
        continue;
      }
      merge(sum->fit, grams.fit);
      if (grams.heldout) merge(*sum->heldout, *grams.heldout);
    }
  }
  return evidence;
}

}  // namespace headspan
