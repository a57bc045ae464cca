// The tokens of a run: which sequences are run, and which of them are held out. The same for every rank and
// every unit with the same vocabulary and end-of-text ids.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "app/job/job.h"
#include "base/log.h"
#include "dist/comm/agreement.h"
#include "io/inputs/sequences.h"
#include "model/core/model_config.h"

namespace headspan {

struct Sample {
  std::vector<Sequence> sequences;
  std::vector<std::uint8_t> heldout;              ///< [sequences] 1: held out
  std::vector<std::vector<std::int64_t>> tokens;  ///< [sequences] the ids; empty for activations
  std::vector<std::int64_t> eos;                  ///< each ends a text; none for activations
  std::vector<std::string> notices;               ///< what the user should know, one line each
  std::string mismatch;  ///< how the tokens' sidecar names another tokenizer than the model's; empty: not
  double tokens_per_byte = NAN;  ///< of the token file, where its sidecar tells the bytes

  bool has_heldout() const;
  std::int64_t total() const;  ///< tokens of all sequences
};

/// Cuts the job's token file for the model of the checkpoint with `config_path`, which may have a further
/// `model_name`. Local; the same on every rank. Throws InputError where the two do not fit.
Sample take_sample(const Job::Tokens& rule, const ModelConfig& config, const std::string& config_path,
                   const std::string& model_name);

/// Logs the notices and the mismatch.
void tell(const Sample& sample, const Log& log);

/// Of the sequences, their tokens and which are held out: equal for samples that are the same, whatever file
/// they were cut from. Local.
std::string sample_digest(const Sample& sample);

/// The sha256 of the token file, which is read whole; empty where it is missing. Throws InputError. Local.
std::string hash_tokens(const Job::Tokens& rule);

/// The digest of what the files beside the token file say of how it is read and cut: the dtype and eos of its
/// sidecar, and its .idx whole; empty where the token file is missing. Throws InputError. Local.
std::string hash_cut(const Job::Tokens& rule);

/// The same where rank 0 alone reads the files. Throws AgreedError. Collective over comm.
std::string hash_tokens(const Job::Tokens& rule, const Comm& comm);
std::string hash_cut(const Job::Tokens& rule, const Comm& comm);

/// The split alone, for sequences that come from elsewhere; `limit` cuts them as it cuts tokens.
Sample split_sequences(const Job::Tokens& rule, std::vector<Sequence> sequences);

}  // namespace headspan
