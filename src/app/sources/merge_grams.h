// The Grams of a unit from saved ones, which are added up.
#pragma once

#include "app/job/job.h"
#include "app/run/process_layout.h"
#include "app/sources/unit_evidence.h"

namespace headspan {

/// Checks everything that the unit reads except the values of the Grams, and that its matrices can be handled
/// on a group's grid. Computes nothing. Throws InputError. Local.
void check_grams(const Job& job, const GridShape& grid);

/// What Gram files say together, without their matrices.
struct GramFiles {
  std::vector<GramStream> streams;  ///< those asked for
  std::int64_t fit_tokens = 0;
  std::string model_type;
  std::string config_sha256;               ///< empty: the user's own activations
  std::string init;                        ///< pretrained or random
  std::string weights_digest;              ///< empty: no weights were read, or a file does not say
  std::string tokens_path, tokens_sha256;  ///< of each file, separated by commas
  std::string tokens_mismatch;             ///< of the files that have one, each once, separated by commas
  std::optional<GramAttention> attention;  ///< of the first file, without the moments
  std::string lacks_attention;             ///< the first file without the group /attention
};

/// Reads what the files say of `streams`. Throws InputError if they cannot be merged. Local.
GramFiles read_gram_files(const Words& paths, const std::vector<Stream>& streams);

/// Reads and merges the files; with `attention` also their moments of attention, if all files have them.
/// Collective over the group.
UnitEvidence merge_grams(const Words& paths, const Job::Predict& predict, const ProcessLayout& processes,
                         bool attention);

}  // namespace headspan
