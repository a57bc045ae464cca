// The tokens of a run: the sequences that are run, and which of them are held out. The same on every rank,
// and for every unit with the same vocabulary and end-of-text ids.
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
  std::vector<std::vector<std::int64_t>> tokens;  ///< [sequences] their ids; empty for activations
  std::vector<std::int64_t> eos;                  ///< ids that end a text; none for activations
  std::vector<std::string> notices;               ///< what the user should know, one line each
  std::string mismatch;  ///< a warning if the sidecar names another tokenizer than the model's; else empty
  double tokens_per_byte = NAN;  ///< of the token file, if its sidecar gives the bytes

  bool has_heldout() const;
  std::int64_t total() const;  ///< tokens of all sequences
};

/// Reads the job's token file and cuts it for the model with this config; `model_name` is a second name by
/// which the sidecar may know it. Throws InputError if the tokens do not suit the model. Local; the same on
/// every rank.
Sample take_sample(const Job::Tokens& rule, const ModelConfig& config, const std::string& config_path,
                   const std::string& model_name);

/// Returns the ids behind which a new document begins in the middle of a sequence: the model's, and those
/// that the job names. Local.
std::vector<std::int64_t> document_ends(const Job::Tokens& rule, const ModelConfig& config);

/// Logs the notices and the mismatch.
void tell(const Sample& sample, const Log& log);

/// Returns a digest of the sequences, their tokens and the held-out choice: equal for equal samples, whatever
/// file they were cut from. Local.
std::string sample_digest(const Sample& sample);

/// Reads the whole token file and returns its SHA-256; empty if the file is missing. Throws InputError.
/// Local.
std::string hash_tokens(const Job::Tokens& rule);

/// Returns a digest of what the files beside the token file say about how it is read and cut: dtype and eos
/// of the sidecar, and the whole .idx; empty if the token file is missing. Throws InputError. Local.
std::string hash_cut(const Job::Tokens& rule);

/// Return the same digests on all ranks, but only rank 0 reads the files. Throw AgreedError. Collective over
/// comm.
std::string hash_tokens(const Job::Tokens& rule, const Comm& comm);
std::string hash_cut(const Job::Tokens& rule, const Comm& comm);

/// Cuts given sequences at tokens.limit and chooses the held-out ones. Throws InputError. Local.
Sample split_sequences(const Job::Tokens& rule, const std::vector<Sequence>& sequences);

}  // namespace headspan
