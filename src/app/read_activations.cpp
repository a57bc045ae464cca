#include <algorithm>

#include "app/gram_source.h"
#include "base/progress.h"
#include "io/activations.h"

namespace headspan {
namespace {

constexpr std::int64_t kChunkTokens = 1024;  // read by one rank at a time

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

template <class T>
class ActivationReader {
 public:
  ActivationReader(Activations& file, const Sample& sample, std::int64_t skip_first, const Team& team)
      : file_(file), places_(places(sample, skip_first)), heldout_(sample.has_heldout()), team_(team) {}

  StreamGrams run(Precision precision, Progress& progress) {
    const std::int64_t columns = file_.heads() * file_.head_size();
    Collector<T> collector(team_.grid(), {columns},
                           {gram_block(team_.grid().shape(), file_.heads(), file_.head_size())}, precision,
                           heldout_);
    const auto total = static_cast<std::int64_t>(places_.size());
    const std::int64_t step = kChunkTokens * team_.group().size();
    for (std::int64_t first = 0; first < total; first += step) {
      const std::int64_t last = std::min(total, first + step);
      const std::int64_t mine = std::min(last, first + kChunkTokens * team_.group().rank());
      add_chunk(collector, mine, std::min(last, mine + kChunkTokens));
      for (const Place part : {Place::fit, Place::heldout})
        if (part == Place::fit || heldout_)
          collector.end_round(static_cast<Part>(part),
                              std::count(&places_[at(first)], &places_[0] + last, part));
      progress.advance(last - first);
    }
    return std::move(collector.finish().front());
  }

 private:
  static std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

  void add_chunk(Collector<T>& collector, std::int64_t first, std::int64_t last) {
    const std::int64_t columns = file_.heads() * file_.head_size();
    std::vector<T> values(at((last - first) * columns));
    agree(team_.group(), [&] {
      if (last > first) file_.read(first, last - first, values.data());
    });
    for (const Place part : {Place::fit, Place::heldout}) {
      if (part == Place::heldout && !heldout_) continue;
      const std::int64_t count = std::count(places_.data() + first, places_.data() + last, part);
      T* out = collector.add_rows(0, static_cast<Part>(part), count);
      for (std::int64_t t = first; t < last; ++t)
        if (places_[at(t)] == part) out = std::copy_n(values.data() + (t - first) * columns, columns, out);
    }
  }

  Activations& file_;
  std::vector<Place> places_;
  bool heldout_;
  const Team& team_;
};

}  // namespace

void check_activations(const Job& job, const Unit& unit) {
  split_sequences(job.tokens, Activations::open(unit.path).sequences());
}

UnitEvidence read_activations(const Job& job, const Unit& unit, const Team& team, const Log& log) {
  std::optional<Activations> file;
  UnitEvidence evidence;
  agree(team.group(), [&] {
    file.emplace(Activations::open(unit.path));
    evidence.sample = split_sequences(job.tokens, file->sequences());
  });
  for (const std::string& notice : evidence.sample.notices) log.notice(notice);
  const Precision precision = product_precision(job.predict.precision);
  Progress progress(log, "read", "tokens", evidence.sample.total(), {{"unit", unit.name}});
  StreamGrams grams = file->is_float32()
                          ? ActivationReader<float>(*file, evidence.sample, job.tokens.skip_first, team)
                                .run(precision, progress)
                          : ActivationReader<double>(*file, evidence.sample, job.tokens.skip_first, team)
                                .run(precision, progress);
  const std::string dtype = file->is_float32() ? "float32" : "float64";
  evidence.streams.push_back(
      {{file->stream(), "given", dtype, job.predict.precision, job.tokens.skip_first},
       {file->head_size(), file->layer(), file->head(), file->hidden_size().value_or(0)},
       fit_rules(job, dtype, job.predict.precision),
       std::move(grams)});
  return evidence;
}

}  // namespace headspan
