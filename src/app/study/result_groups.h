// The groups of a result that hold no fits: the sequences that were run, the overlap of a model's weights,
// and what its query heads attend to. Not those of streams and pairs of streams (app/study/result_file.h).
#pragma once

#include <vector>

#include "app/sources/attention_scores.h"
#include "app/sources/overlap.h"
#include "io/hdf5/netcdf.h"
#include "io/inputs/sequences.h"

namespace headspan {

/// Write the groups `tokens`, `overlap` and `attention`. heldout: [sequences]. Collective over the file's
/// communicator; rank 0 has the values.
void write_tokens(NetcdfFile& file, const std::vector<Sequence>& sequences,
                  const std::vector<std::uint8_t>& heldout);
void write_overlap(NetcdfFile& file, const OverlapTable& table);
void write_scores(NetcdfFile& file, const AttentionScores& table);

}  // namespace headspan
