#include "app/sources/read_activations.h"

#include <algorithm>

#include "app/capture/unit_state.h"
#include "app/job/job_rules.h"
#include "app/plan/matrix_sizes.h"
#include "base/progress.h"
#include "base/range.h"
#include "io/checkpoint/content_digest.h"
#include "io/inputs/activations.h"

namespace headspan {
namespace {

constexpr std::int64_t kChunkTokens = 1024;  // read by one rank at a time; a piece of the unit's state

enum class Place : std::uint8_t { fit, heldout, skipped };

/// Where each token of the sample goes.
std::vector<Place> places(const Sample& sample, std::int64_t skip_first) {
  std::vector<Place> result;
  for (std::size_t s = 0; s < sample.sequences.size(); ++s)
    for (std::int64_t i = 0; i < sample.sequences[s].length; ++i)
      result.push_back(i < skip_first           ? Place::skipped
                       : sample.heldout[s] != 0 ? Place::heldout
                                                : Place::fit);
  return result;
}

HeadLayout layout_of(const Activations& file) {
  return {file.head_size(), file.layer(), file.head(), file.hidden_size().value_or(0)};
}

/// By default a job asks for all streams, of which the file has one.
void check_stream(const Job& job, const Activations& file) {
  const std::vector<Stream>& asked = job.predict.streams;
  if (std::find(asked.begin(), asked.end(), value_of(stream_words(), file.stream())) != asked.end()) return;
  std::string text;
  for (const Stream stream : asked) text += (text.empty() ? "" : ",") + word_of(stream_words(), stream);
  throw InputError("", "predict.streams", text, file.path() + " holds stream " + file.stream(),
                   "leave it out, or give " + file.stream());
}

template <class T>
class ActivationReader {
 public:
  ActivationReader(Activations& file, const Sample& sample, std::int64_t skip_first,
                   const ProcessLayout& team)
      : file_(file), places_(places(sample, skip_first)), heldout_(sample.has_heldout()), team_(team) {}

  StreamGrams run(Precision precision, Progress& progress, const UnitState& state) {
    const std::int64_t block = gram_block(team_.grid().shape(), file_.heads(), file_.head_size());
    Collector<T> collector(team_.grid(), {{columns()}, {block}, precision, heldout_});
    const UnitState::CollectorSource<T> source = [&]() -> Collector<T>& { return collector; };
    PiecesDone chunks = state.resume(source, (total() + kChunkTokens - 1) / kChunkTokens);
    std::vector<std::int64_t> left;
    for (std::int64_t chunk = 0; chunk < static_cast<std::int64_t>(chunks.done.size()); ++chunk) {
      if (chunks.done[at(chunk)] == 0)
        left.push_back(chunk);
      else
        progress.advance(tokens_of(chunk).count);
    }
    const auto ranks = static_cast<std::ptrdiff_t>(team_.group().size());
    for (auto first = left.begin(); first != left.end();) {
      const auto last = first + std::min(ranks, left.end() - first);
      run_round(collector, {first, last}, progress);
      for (; first != last; ++first) chunks.done[at(*first)] = 1;
      state.keep(source, chunks);
    }
    return std::move(collector.finish().front());
  }

 private:
  static std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

  std::int64_t columns() const { return file_.heads() * file_.head_size(); }
  std::int64_t total() const { return static_cast<std::int64_t>(places_.size()); }

  /// Reads a chunk on each of the first ranks and adds all of them.
  void run_round(Collector<T>& collector, const std::vector<std::int64_t>& chunks, Progress& progress) {
    const std::size_t rank = at(team_.group().rank());
    const Range mine = rank < chunks.size() ? tokens_of(chunks[rank]) : Range{0, 0};
    std::vector<T> values(at(mine.count * columns()));
    agree(team_.group(), [&] {
      if (mine.count > 0) file_.read(mine.first, mine.count, values.data());
    });
    for (const Place part : {Place::fit, Place::heldout}) {
      if (part == Place::heldout && !heldout_) continue;
      T* out = collector.add_rows(0, static_cast<Part>(part), count(mine, part));
      for (std::int64_t t = 0; t < mine.count; ++t)
        if (places_[at(mine.first + t)] == part)
          out = std::copy_n(values.data() + t * columns(), columns(), out);
      std::int64_t all = 0;
      for (const std::int64_t chunk : chunks) all += count(tokens_of(chunk), part);
      collector.end_round(static_cast<Part>(part), all);
    }
    for (const std::int64_t chunk : chunks) progress.advance(tokens_of(chunk).count);
  }

  Range tokens_of(std::int64_t chunk) const {
    const std::int64_t first = chunk * kChunkTokens;
    return {first, std::min(kChunkTokens, total() - first)};
  }

  std::int64_t count(const Range& slab, Place part) const {
    const Place* first = places_.data() + slab.first;
    return std::count(first, first + slab.count, part);
  }

  Activations& file_;
  std::vector<Place> places_;
  bool heldout_;
  const ProcessLayout& team_;
};

}  // namespace

void check_activations(const Job& job, const Unit& unit, const GridShape& grid) {
  const Activations file = Activations::open(unit.path);
  check_stream(job, file);
  check_references(job.predict, file.heads());
  split_sequences(job.tokens, file.sequences());
  check_layer_sizes(job, layer_sizes(layout_of(file)), grid);
}

UnitEvidence read_activations(const UnitRun& run) {
  const Job& job = run.job;
  const Unit& unit = run.unit;
  const ProcessLayout& team = run.team;
  const Log& log = run.log;
  std::optional<Activations> file;
  UnitEvidence evidence;
  agree(team.group(), [&] {
    file.emplace(Activations::open(unit.path));
    evidence.sample = split_sequences(job.tokens, file->sequences());
    if (!file->names_stream())
      evidence.sample.notices.push_back(unit.path + " has no attribute stream: taken for keys, stream = k");
  });
  tell(evidence.sample, log);
  std::string contents;
  agree(team.group(), [&] {
    if (!team.group().is_root()) return;
    evidence.input_digest = files_digest({unit.path});
    contents = "activations " + evidence.input_digest + " " + change_times({unit.path}) + "\n";
  });
  evidence.input_digest = team.group().broadcast(evidence.input_digest, 0);
  const std::string dtype = file->is_float32() ? "float32" : "float64";
  StreamEvidence stream{{file->stream(), "given", dtype, word_of(precision_words(), job.predict.precision),
                         job.tokens.skip_first},
                        layout_of(*file),
                        fit_rules(job, dtype, job.predict.precision),
                        {}};
  const UnitState state(run, {gram_stream(stream.origin, stream.layout, evidence.sample.has_heldout())},
                        team.group().broadcast(contents, 0));
  Progress progress(log, "read", "tokens", evidence.sample.total(), {{"unit", unit.name}});
  const auto sum = [&](auto zero) {
    ActivationReader<decltype(zero)> reader(*file, evidence.sample, job.tokens.skip_first, team);
    return reader.run(job.predict.precision, progress, state);
  };
  stream.grams = file->is_float32() ? sum(0.0F) : sum(0.0);
  evidence.streams.push_back(std::move(stream));
  return evidence;
}

}  // namespace headspan
