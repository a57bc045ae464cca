#include <algorithm>

#include "app/gram_source.h"
#include "base/input_file.h"

namespace headspan {
namespace {

/// One Gram of a file, in blocks of this run's grid.
HeadGram load(const H5File& file, const GramStream& stream, const std::string& part, const Grid& grid) {
  HeadGram gram{0,
                {},
                Matrix(grid, stream.columns(), stream.columns(),
                       gram_block(grid.shape(), stream.heads(), stream.head_size))};
  GramPart read = read_gram(file, stream, part, gram.matrix);
  gram.tokens = read.tokens;
  gram.mean = std::move(read.mean);
  return gram;
}

/// Grams add up only over the same heads, captured and computed alike.
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

std::vector<GramStream> read_streams(const std::string& path) {
  const InputFile readable(path);  // names what is missing or not readable
  try {
    return read_gram_streams(H5File::open(path));
  } catch (const Error& e) {
    throw InputError(path, "", "", std::string("cannot be read as Grams (") + e.what() + ")",
                     "give a file that output.save_gram wrote");
  }
}

/// Those streams of the job's files, which must all have the same, that the job asks for.
std::vector<GramStream> common_streams(const Job& job) {
  std::vector<GramStream> first;
  for (const std::string& path : job.grams.paths) {
    const std::vector<GramStream> streams = read_streams(path);
    if (first.empty()) first = streams;
    if (streams.size() != first.size())
      throw InputError(path, "", "", "has other streams than the files before", "merge Grams of one job");
    for (std::size_t s = 0; s < streams.size(); ++s) check_same(path, streams[s], first[s]);
  }
  const Words& asked = job.predict.streams;
  first.erase(std::remove_if(first.begin(), first.end(),
                             [&](const GramStream& stream) {
                               return std::find(asked.begin(), asked.end(), stream.name) == asked.end();
                             }),
              first.end());
  if (first.empty())
    throw InputError(job.grams.paths.front(), "", "", "holds none of the streams of predict.streams",
                     "see what it holds with headspan inspect");
  return first;
}

}  // namespace

void check_grams(const Job& job) { common_streams(job); }

UnitEvidence merge_grams(const Job& job, const Team& team) {
  UnitEvidence evidence;
  std::vector<GramStream> streams;
  agree(team.group(), [&] { streams = common_streams(job); });
  for (const std::string& path : job.grams.paths) {
    const H5File file = H5File::open(team.group(), path);
    for (std::size_t s = 0; s < streams.size(); ++s) {
      const GramStream& stream = streams[s];
      StreamGrams grams{load(file, stream, "fit", team.grid()), {}};
      if (stream.heldout) grams.heldout = load(file, stream, "heldout", team.grid());
      if (evidence.streams.size() < streams.size()) {
        evidence.streams.push_back(
            {{stream.name, stream.capture, stream.forward_dtype, stream.precision, stream.skip_first},
             {stream.head_size, stream.layer, stream.head, stream.hidden_size},
             fit_rules(job, stream.forward_dtype, stream.precision),
             std::move(grams)});
        continue;
      }
      merge(evidence.streams[s].grams->fit, grams.fit);
      if (grams.heldout) merge(*evidence.streams[s].grams->heldout, *grams.heldout);
    }
  }
  return evidence;
}

}  // namespace headspan
