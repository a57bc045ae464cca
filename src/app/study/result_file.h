// The result of one unit as a netCDF-4 file (src/io/README.md): a group for each stream and each pair of
// streams, `overlap`, `attention`, `tokens`, and the attributes that say what was computed from what. Writes
// what it is given; computes only the nulls beside the numbers.
#pragma once

#include <string>
#include <vector>

#include "app/sources/attention_scores.h"
#include "app/sources/overlap.h"
#include "app/study/analysis.h"
#include "io/hdf5/netcdf.h"
#include "io/inputs/sequences.h"

namespace headspan {

/// Everything that goes into the file besides the tables of the streams.
struct ResultHeader {
  NetcdfAttributes attributes;      ///< of the root
  std::vector<Sequence> sequences;  ///< empty: no group `tokens`
  std::vector<std::uint8_t> heldout;
  std::int64_t pool = 0;
  std::int64_t references = 0;
};

/// The tables of a unit: of its streams, and of pairs of streams.
struct StudyResults {
  std::vector<StreamResult> streams;
  std::vector<PairResult> cross;
};

/// Writes the file at `path`. Throws Error if HDF5 did not write collectively. Collective over comm, whose
/// ranks share the rows of the tables.
void write_result(const Comm& comm, const std::string& path, const ResultHeader& header,
                  const StudyResults& results, const std::optional<OverlapTable>& overlap,
                  const std::optional<AttentionScores>& scores);

/// Throws Error, which names what is missing, unless the file opens and holds the results. One rank.
void verify_result(const std::string& path, const StudyResults& results);

}  // namespace headspan
