#include "app/sources/read_activations.h"

#include <algorithm>

#include "app/capture/unit_state.h"
#include "app/job/job_rules.h"
#include "app/plan/matrix_sizes.h"
#include "base/checked.h"
#include "base/progress.h"
#include "base/range.h"
#include "io/checkpoint/content_digest.h"
#include "io/inputs/activations.h"

namespace headspan {
namespace {

constexpr std::int64_t kChunkTokens = 1024;  // read by a rank at once; a chunk is an item of the unit's state

/// Returns the part that each token of the sample belongs to; none for skipped tokens.
std::vector<std::optional<Part>> parts_of(const Sample& sample, std::int64_t skip_first) {
  std::vector<std::optional<Part>> parts;
  for (std::size_t s = 0; s < sample.sequences.size(); ++s) {
    const std::int64_t length = sample.sequences[s].length, skipped = std::min(skip_first, length);
    parts.insert(parts.end(), to_size(skipped), std::nullopt);
    parts.insert(parts.end(), to_size(length - skipped), sample.heldout[s] != 0 ? Part::heldout : Part::fit);
  }
  return parts;
}

HeadLayout layout_of(const Activations& file) {
  return {file.head_size(), file.layer(), file.head(), file.hidden_size().value_or(0)};
}

/// Throws InputError unless the file's stream is among `streams`, by default all.
void check_stream(const std::vector<Stream>& streams, const Activations& file) {
  std::string asked;
  for (const Stream stream : streams) {
    if (stream == file.stream()) return;
    asked += (asked.empty() ? "" : ",") + word_of(stream_words(), stream);
  }
  const std::string& found = word_of(stream_words(), file.stream());
  throw InputError("", "predict.streams", asked, file.path() + " holds stream " + found,
                   "leave it out, or give " + found);
}

template <class T>
class ActivationReader {
 public:
  ActivationReader(Activations& file, const Sample& sample, std::int64_t skip_first,
                   const ProcessLayout& processes)
      : file_(file),
        parts_(parts_of(sample, skip_first)),
        heldout_(sample.has_heldout()),
        processes_(processes) {}

  StreamGrams run(Precision precision, Progress& progress, const UnitState& state) {
    const std::int64_t block = gram_block(processes_.grid().shape(), file_.heads(), file_.head_size());
    Collector<T> collector(processes_.grid(), {{columns()}, {block}, precision, heldout_});
    const UnitState::CollectorSource<T> source = [&]() -> Collector<T>& { return collector; };
    const std::int64_t chunk_count = (total() + kChunkTokens - 1) / kChunkTokens;
    ItemsDone chunks{0, std::vector<std::uint8_t>(to_size(chunk_count), 0)};
    state.resume(source, chunks);
    std::vector<std::int64_t> left;
    for (std::int64_t chunk = 0; chunk < chunk_count; ++chunk) {
      if (chunks.done[to_size(chunk)] == 0)
        left.push_back(chunk);
      else
        progress.advance(tokens_of(chunk).count);
    }
    const auto ranks = static_cast<std::ptrdiff_t>(processes_.group().size());
    for (auto first = left.begin(); first != left.end();) {
      const auto last = first + std::min(ranks, left.end() - first);
      run_round(collector, {first, last}, progress);
      for (; first != last; ++first) chunks.done[to_size(*first)] = 1;
      state.save_if_due(source, chunks);
    }
    return std::move(collector.finish().front());
  }

 private:
  std::int64_t columns() const { return file_.heads() * file_.head_size(); }
  std::int64_t total() const { return static_cast<std::int64_t>(parts_.size()); }

  /// Reads one chunk on each of the first ranks and adds them to the Grams.
  void run_round(Collector<T>& collector, const std::vector<std::int64_t>& chunks, Progress& progress) {
    const std::size_t rank = to_size(processes_.group().rank());
    const Range tokens = rank < chunks.size() ? tokens_of(chunks[rank]) : Range{0, 0};
    std::vector<T> values(to_size(tokens.count * columns()));
    agree(processes_.group(), [&] {
      if (tokens.count > 0) file_.read(tokens.first, tokens.count, values.data());
    });
    for (const Part part : {Part::fit, Part::heldout}) {
      if (part == Part::heldout && !heldout_) continue;
      T* out = collector.add_rows(0, part, count(tokens, part));
      for (std::int64_t t = 0; t < tokens.count; ++t)
        if (parts_[to_size(tokens.first + t)] == part)
          out = std::copy_n(values.data() + t * columns(), columns(), out);
      std::int64_t all = 0;
      for (const std::int64_t chunk : chunks) all += count(tokens_of(chunk), part);
      collector.end_round(part, all);
    }
    for (const std::int64_t chunk : chunks) progress.advance(tokens_of(chunk).count);
  }

  Range tokens_of(std::int64_t chunk) const {
    const std::int64_t first = chunk * kChunkTokens;
    return {first, std::min(kChunkTokens, total() - first)};
  }

  std::int64_t count(const Range& tokens, Part part) const {
    const auto first = parts_.begin() + tokens.first;
    return std::count(first, first + tokens.count, part);
  }

  Activations& file_;
  std::vector<std::optional<Part>> parts_;  // by token
  bool heldout_;
  const ProcessLayout& processes_;
};

}  // namespace

void check_activations(const Job& job, const Unit& unit, const GridShape& grid) {
  const Activations file = Activations::open(unit.path);
  check_stream(job.predict.streams, file);
  check_references(job.predict, file.heads());
  split_sequences(job.tokens, file.sequences());
  check_layer_sizes(job.ceiling, job.run, layer_sizes(layout_of(file)), grid);
}

UnitEvidence read_activations(const UnitRun& run) {
  const Job& job = run.job;
  const std::string& path = run.unit.path;
  const Comm& group = run.processes.group();
  std::optional<Activations> file;
  UnitEvidence evidence;
  agree(group, [&] {
    file.emplace(Activations::open(path));
    evidence.sample = split_sequences(job.tokens, file->sequences());
    if (!file->names_stream())
      evidence.sample.notices.push_back(path + " has no attribute stream: taken for keys, stream = k");
  });
  tell(evidence.sample, run.log);
  std::string contents;
  const Dtype dtype = file->is_float32() ? Dtype::float32 : Dtype::float64;
  const Precision precision = job.predict.product(dtype);
  agree(group, [&] {
    if (!group.is_root()) return;
    evidence.input_digest = files_digest({path});
    contents = "activations " + evidence.input_digest + " " + change_times({path}) + "\n" +
               chosen_products(job.predict, dtype);
  });
  evidence.input_digest = group.broadcast(evidence.input_digest, 0);
  StreamEvidence stream{{file->stream(), std::nullopt, dtype, precision, job.tokens.skip_first},
                        layout_of(*file),
                        fit_rules(job.predict.mode, dtype, precision)};
  const UnitState state(run, {gram_stream(stream.origin, stream.layout, evidence.sample.has_heldout())},
                        group.broadcast(contents, 0));
  Progress progress(run.log, "read", "tokens", evidence.sample.total(), {{"unit", run.unit.name}});
  const auto sum = [&](auto zero) {
    ActivationReader<decltype(zero)> reader(*file, evidence.sample, job.tokens.skip_first, run.processes);
    return reader.run(precision, progress, state);
  };
  stream.grams = file->is_float32() ? sum(0.0F) : sum(0.0);
  evidence.streams.push_back(std::move(stream));
  return evidence;
}

}  // namespace headspan
