// The state of a unit while its Grams grow: their sums so far, the tokens that wait for the next panel, and
// which pieces have been added (sequences of a model's forward, chunks of an activations file). Saved beside
// the result as CHECKPOINT.h5.state, published as a result is, and taken up by the next run of the same job,
// on any number of ranks and any grid. On the layout that saved it the unit goes on as if nothing had
// happened, to the bit. Removed when the result is published.
//
//   /                  attributes identity, ranks, grid, tensor_parallel;  done: [pieces] 1 where it was
//   added /STREAM/PART       as in a Gram file (io/gram_file.h), with the provisional mean in place of the
//   mean
//     sum              [ranks, D] of the shifted values of each rank's tokens
//     waiting          [tokens, D] rows that wait, by rank; attribute waiting_tokens: [ranks]
//
//   attention          where the unit sums it (app/gram_source.h): scale [ranks, layers], query [ranks,
//   layers,
//                      heads of the rank, d, d], the sums of each rank
#pragma once

#include <functional>

#include "app/run_clock.h"
#include "app/team.h"
#include "app/unit.h"
#include "base/log.h"
#include "io/gram_file.h"
#include "stats/attention_metric.h"
#include "stats/collector.h"

namespace headspan {

class UnitState {
 public:
  /// `streams`: as they are collected, in order. `attention`: what is summed beside them, or null. Everything
  /// must outlive the object.
  UnitState(const Job& job, const Unit& unit, const Team& team, RunClock& clock, const Log& log,
            std::vector<GramStream> streams, AttentionSums* attention = nullptr);

  /// Fills the collector and the sums, which are fresh, from what an earlier run of this job has saved. Which
  /// pieces that covers: [pieces]; zeros where nothing is saved, or not all. Collective over the group.
  template <class T>
  std::vector<std::uint8_t> resume(Collector<T>& collector, std::int64_t pieces) const;

  /// Between rounds: saves where it is time to what `collector` then gives; throws Stopped behind a save that
  /// ends the run. Collective.
  template <class T>
  void keep(const std::function<Collector<T>&()>& collector, const std::vector<std::uint8_t>& done) const;
  template <class T>
  void keep(Collector<T>& collector, const std::vector<std::uint8_t>& done) const {
    keep<T>([&]() -> Collector<T>& { return collector; }, done);
  }

 private:
  template <class T>
  void save(Collector<T>& collector, const std::vector<std::uint8_t>& done) const;

  const Job& job_;
  const Unit& unit_;
  const Team& team_;
  RunClock& clock_;
  const Log& log_;
  std::vector<GramStream> streams_;
  AttentionSums* attention_;
};

/// Removes the state of a unit whose result is published. One rank.
void remove_state(const Job& job, const Unit& unit);

}  // namespace headspan
