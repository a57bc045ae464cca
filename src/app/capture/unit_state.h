// The state of a unit while its Grams are summed: the sums so far, the tokens that wait for the next panel,
// and which items have been added (sequences that a model runs, or chunks of an activations file). It is
// saved beside the result as CHECKPOINT.h5.state, published as a result is, and resumed by the next run of
// the same job, on any number of ranks and any grid. On the layout that saved it, the Grams are bit-identical
// to those of a run that was never stopped. It is removed when the result is published.
//
//   /                  attributes format: the version of this layout; identity, ranks, grid,
//                      tensor_parallel; contents: what was read, one "NAME DIGEST" a line; passes, pass: the
//                      names of all passes over the tokens and the index of the current one
//     done             [items] 1 for those added in that pass
//   /STREAM/PART       as in a Gram file (io/outputs/gram_file.h), but about the provisional mean
//     sum              [ranks, D] sums of the shifted values of each rank's tokens
//     waiting          [tokens, D] rows that wait, by rank; attribute waiting_tokens: [ranks]
//   /attention         if the study saves it (saves_attention, app/job/job_rules.h), each rank's sums
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
struct ItemsDone {
  std::size_t pass = 0;            ///< over the tokens; those before it are complete
  std::vector<std::uint8_t> done;  ///< [items] 1 for those added in this pass
};

class UnitState {
 public:
  /// Returns a collector in host memory, which is made or filled by the call.
  template <class T>
  using CollectorSource = std::function<Collector<T>&()>;

  /// `streams`: in the collector's order. `contents`: what is read, one "NAME DIGEST" a line, the same on
  /// every rank. `attention`: what is summed besides the streams, or null. `passes`: names of what each pass
  /// sums. `run` and `attention` must outlive the object.
  UnitState(const UnitRun& run, std::vector<GramStream> streams, std::string contents,
            AttentionSums* attention = nullptr, const std::vector<std::string>& passes = {});

  /// Fills the fresh collector, the sums and `items` with what an earlier run of this job has saved from the
  /// same contents in the same passes. Returns whether there was such a state; if one could not be used, logs
  /// why. Collective over the group.
  template <class T>
  bool resume(const CollectorSource<T>& source, ItemsDone& items) const;

  /// Saves, between rounds, if the run's clock says so; throws Stopped after a save that ends the run.
  /// Collective over the group.
  template <class T>
  void save_if_due(const CollectorSource<T>& source, const ItemsDone& items) const;

 private:
  template <class T>
  void save(Collector<T>& collector, const ItemsDone& items) const;
  template <class T>
  void write(H5File& file, Collector<T>& collector, const ItemsDone& items) const;
  template <class T>
  void read(const H5File& file, Collector<T>& collector) const;
  std::optional<H5File> open_saved(std::int64_t count) const;
  std::string obstacle(const H5File& file, std::int64_t count) const;
  bool is_sound(const H5File& file, std::int64_t count) const;
  void log(const char* event, const ItemsDone& items) const;

  const UnitRun& run_;
  std::string path_;
  std::vector<GramStream> streams_;
  std::string contents_;
  AttentionSums* attention_;
  std::string passes_;
};

/// Removes the state of a unit whose result is published. One rank.
void remove_state(const Job& job, const Unit& unit);

}  // namespace headspan
