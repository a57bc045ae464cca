// Where the Grams of a unit come from: a model that runs over tokens, a file of activations, or saved Grams.
// Each source gives the same thing, so that the statistics know no difference.
#pragma once

#include "app/analysis.h"
#include "app/overlap.h"
#include "app/run_clock.h"
#include "app/sample.h"
#include "app/unit.h"
#include "io/gram_file.h"
#include "stats/collector.h"

namespace headspan {

/// One stream of a unit, ready for the statistics.
struct StreamEvidence {
  StreamOrigin origin;
  HeadLayout layout;
  FitRules rules;
  /// One of them, or nothing until they are captured or read, and once they are analysed.
  std::optional<StreamGrams> grams{};
  std::optional<ResidentGrams> resident{};  ///< on the GPUs of the team
};

/// What a source says of a unit besides its Grams.
struct UnitEvidence {
  std::vector<StreamEvidence> streams;
  Sample sample;  ///< no sequences where merged Grams tell none
  std::string model_type;
  std::string config_sha256;
  std::string weights_digest;  ///< empty: none were read
  std::string input_digest;    ///< of the activations or Gram files; empty for a model
  std::optional<OverlapTable> overlap;     ///< of a model's weights, where the job asks for it
  std::optional<GramAttention> attention;  ///< what goes with the Grams into their file, where there is any
};

/// Each source's check of what it will read, without computing: all but the values of weights and
/// activations; and of the matrices that it leads to on the grid of a group. Throws InputError. Local.
void check_model(const Job& job, const Unit& unit, const GridShape& grid);
void check_activations(const Job& job, const Unit& unit, const GridShape& grid);
void check_grams(const Job& job, const GridShape& grid);

/// Whether a study saves, beside the Grams, what attention does with keys and values: where both are captured
/// as a cache holds them. A model runs its last layer's whole block for that.
bool saves_attention(const Job& job);

/// From a model: loads or draws the weights and runs the job's tokens, from where an earlier run has stopped.
/// Throws Stopped where `clock` says so, with the state saved. Phases of `profile`: read, load, overlap and
/// those of capture_grams. Collective over the team's group.
UnitEvidence run_model(const Job& job, const Unit& unit, const Team& team, RunClock& clock, const Log& log,
                       Profile& profile);

/// From the user's own activations, from where an earlier run has stopped. Throws Stopped as run_model does.
/// Collective over the team's group.
UnitEvidence read_activations(const Job& job, const Unit& unit, const Team& team, RunClock& clock,
                              const Log& log);

/// What the Gram files of a job say together, without their matrices.
struct GramFiles {
  std::vector<GramStream> streams;  ///< of those that the job asks for
  std::int64_t fit_tokens = 0;
  std::string model_type;
  std::string config_sha256;               ///< empty: of no model
  std::string weights_digest;              ///< empty: of none that were read, or one does not tell
  std::string tokens_path, tokens_sha256;  ///< of each file, with commas between
  std::optional<GramAttention> attention;  ///< of the first file, without the moments
  std::string lacks_attention;             ///< the first file that has none of it
};

/// Throws InputError where the job's files cannot be merged. Local.
GramFiles read_gram_files(const Job& job);

/// From saved Grams, merged; with `attention` what all files, or none, have of it too. Collective over the
/// team's group.
UnitEvidence merge_grams(const Job& job, const Team& team, bool attention);

/// What Gram files say of a stream.
GramStream gram_stream(const StreamOrigin& origin, const HeadLayout& layout, bool heldout);

/// The rules of the fits for values and products of these precisions.
FitRules fit_rules(const Job& job, const std::string& forward_dtype, Precision precision);

}  // namespace headspan
