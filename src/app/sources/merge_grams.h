// The Grams of a unit from saved ones, merged.
#pragma once

#include "app/job/job.h"
#include "app/run/process_layout.h"
#include "app/sources/unit_evidence.h"

namespace headspan {

/// Checks what the unit will read, without computing: all but the values of the Grams; and the matrices that
/// it leads to on the grid of a group. Throws InputError. Local.
void check_grams(const Job& job, const GridShape& grid);

/// What the Gram files of a job say together, without their matrices.
struct GramFiles {
  std::vector<GramStream> streams;  ///< of those that the job asks for
  std::int64_t fit_tokens = 0;
  std::string model_type;
  std::string config_sha256;               ///< empty: of no model
  std::string init;                        ///< pretrained or random
  std::string weights_digest;              ///< empty: of none that were read, or one does not tell
  std::string tokens_path, tokens_sha256;  ///< of each file, with commas between
  std::string tokens_mismatch;             ///< likewise, of those that have one, each once
  std::optional<GramAttention> attention;  ///< of the first file, without the moments
  std::string lacks_attention;             ///< the first file that has none of it
};

/// Throws InputError where the job's files cannot be merged. Local.
GramFiles read_gram_files(const Job& job);

/// From saved Grams, merged; with `attention` what all files, or none, have of it too. Collective over the
/// team's group.
UnitEvidence merge_grams(const Job& job, const ProcessLayout& team, bool attention);

}  // namespace headspan
