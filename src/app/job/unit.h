// A unit: what is computed, published and resumed as a whole: one checkpoint, one file of activations, or the
// saved Grams of a job. Which units a job has and how they are told apart; not how one is computed
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
  std::int64_t row = -1;   ///< of the manifest, from 0; -1 without one
  bool random = false;     ///< weights drawn, not read
  std::int64_t step = -1;  ///< -1: unknown
  std::int64_t training_tokens = -1;
  std::optional<double> validation_loss;
  std::string revision;       ///< repository, revision and commit as the manifest names them
  std::string tokens_sha256;  ///< of the job's token file, empty until the study is planned; or of the Grams'
  std::string tokens_cut_digest;  ///< of what beside that file says how it is cut; likewise

  std::string result_path(const Job& job) const;
  std::string gram_path(const Job& job) const;
};

/// The units of a job, in order. Throws InputError. Local; the same on every rank.
std::vector<Unit> list_units(const Job& job);

/// Makes the tokens that all units read part of what each is known by: the digest of their file, and that of
/// what says how it is cut. Local.
void set_token_digests(std::vector<Unit>& units, const std::string& tokens_sha256,
                       const std::string& cut_digest);

/// A text that is equal for runs of a unit that mean the same numbers: the job without where it runs and
/// where it writes, and the unit. For .done files and for telling what differs.
std::string unit_identity(const Job& job, const Unit& unit);

}  // namespace headspan
