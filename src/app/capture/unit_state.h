// The state of a unit while its Grams grow: their sums so far, the tokens that wait for the next panel, and
// which pieces have been added (sequences of a model's forward, chunks of an activations file). Saved beside
// the result as CHECKPOINT.h5.state, published as a result is, and taken up by the next run of the same job,
// on any number of ranks and any grid. On the layout that saved it the unit goes on as if nothing had
// happened, to the bit. Removed when the result is published.
//
//   /                  attributes format: the number of this layout; identity, ranks, grid,
//                      tensor_parallel; contents: what was read, one "NAME DIGEST" a line; passes, pass: the
//                      names of all passes over the tokens and the number of the one under way
//     done             [pieces] 1 where it was added in that pass
//   /STREAM/PART       as in a Gram file (io/outputs/gram_file.h), with the provisional mean in place of the
//   mean
//     sum              [ranks, D] of the shifted values of each rank's tokens
//     waiting          [tokens, D] rows that wait, by rank; attribute waiting_tokens: [ranks]
//   /attention         where the unit sums it (app/sources/gram_source.h), the sums of each rank
//     scale            [ranks, layers]
//     query            [ranks, layers, heads of the rank, d, d]
#pragma once

#include <functional>

#include "app/run/unit_run.h"
#include "io/outputs/gram_file.h"
#include "stats/compression/attention_metric.h"
#include "stats/gram/collector.h"

namespace headspan {

/// How far a unit has come.
struct PiecesDone {
  std::size_t pass = 0;            ///< over the tokens; those before it are complete
  std::vector<std::uint8_t> done;  ///< [pieces] 1 where it was added in this pass
};

class UnitState {
 public:
  /// A collector that is made, or brought to the host, when it is asked for.
  template <class T>
  using CollectorSource = std::function<Collector<T>&()>;

  /// `streams`: as they are collected, in order. `contents`: what is read, one "NAME DIGEST" a line, equal on
  /// every rank. `attention`: what is summed beside the streams, or null. `passes`: what each pass sums, in
  /// words, where there are several. Everything must outlive the object.
  UnitState(const UnitRun& run, std::vector<GramStream> streams, std::string contents,
            AttentionSums* attention = nullptr, const std::vector<std::string>& passes = {});

  /// Fills the collector and the sums, which are fresh, from what an earlier run of this job has saved: from
  /// the same contents, in the same passes and layout of the file; else tells why not. How far that is; pass
  /// 0 and zeros where nothing is taken. Collective over the group.
  template <class T>
  PiecesDone resume(const CollectorSource<T>& collector, std::int64_t pieces) const;

  /// Between rounds: saves where it is time to; throws Stopped behind a save that ends the run. Collective.
  template <class T>
  void keep(const CollectorSource<T>& collector, const PiecesDone& pieces) const;

 private:
  template <class T>
  void save(Collector<T>& collector, const PiecesDone& pieces) const;
  std::string obstacle(const H5File& file, std::int64_t pieces) const;
  bool is_sound(const H5File& file, std::int64_t pieces) const;

  const UnitRun& run_;
  std::vector<GramStream> streams_;
  std::string contents_;
  AttentionSums* attention_;
  std::string passes_;
};

/// Removes the state of a unit whose result is published. One rank.
void remove_state(const Job& job, const Unit& unit);

}  // namespace headspan
