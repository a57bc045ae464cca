// A unit is what a study computes, publishes and resumes as a whole: one checkpoint, one file of activations,
// or the saved Grams of a job. Which units a job has and how they are identified; not how one is computed
// (app/study/run_unit.h).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "app/job/job.h"

namespace headspan {

struct Unit {
  enum class Kind { model, activations, grams };
  Kind kind = Kind::model;
  std::string model_name;  ///< names the result's folder
  std::string name;        ///< names the result's file
  std::string path;        ///< checkpoint folder, activations file, or the first Gram file
  std::int64_t row = -1;   ///< row of the manifest, from 0; -1 without one
  bool random = false;     ///< weights drawn, not read
  std::int64_t step = -1;  ///< -1: unknown
  std::int64_t training_tokens = -1;
  std::int64_t training_seed = -1;
  std::optional<double> validation_loss;
  std::string revision;   ///< repository, revision and commit, from the manifest
  std::string reference;  ///< checkpoint folder of cross.model; empty: none
  std::string reference_name;
  std::string tokens_sha256;  ///< of the job's token file (empty until set_token_digests), or of the Grams'
  std::string tokens_cut_digest;  ///< of the files that say how it is cut (app/run/sample.h)

  /// Return the paths of its result and of its Grams in `directory`, which is output.directory.
  std::string result_path(const std::string& directory) const;
  std::string gram_path(const std::string& directory) const;
  std::string state_path(const std::string& directory) const;
};

/// Returns the units of a job, in order. Throws InputError. Local; the same on every rank.
std::vector<Unit> list_units(const Job& job);

/// Sets the digests of the token file, which all units share, and of what says how it is cut. Local.
void set_token_digests(std::vector<Unit>& units, const std::string& tokens_sha256,
                       const std::string& cut_digest);

/// Returns a text that is equal for runs of a unit that compute the same numbers: the unit and the job,
/// without the keys that say where it runs and writes. For .done files, and to report what differs.
std::string unit_identity(const Job& job, const Unit& unit);

}  // namespace headspan
