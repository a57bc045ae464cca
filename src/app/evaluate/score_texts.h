// The loss of a model on texts with one kind of KV cache, and how far it is from the full cache.
#pragma once

#include <string>

#include "app/run/cached_model.h"
#include "app/run/sample.h"
#include "base/error.h"
#include "base/progress.h"

namespace headspan {

/// Of one text; per predicted token, in nats. Standard errors are over sequences (of a ratio of sums). What
/// was not asked for, or what a single sequence does not tell, is NaN.
struct TextScore {
  std::int64_t tokens = 0;  ///< predicted: all but the first of each sequence
  double loss = 0, loss_se = 0;
  double full_loss = 0;
  double dloss = 0, dloss_se = 0;  ///< loss less full_loss, of the same tokens
  double kl = 0, kl_se = 0;
};

/// Runs the sequences, `batch` at a time on each data-parallel row; with `reference` beside a full cache.
/// Throws AgreedError that names the text, `name`, where its loss is not finite. Collective over the team.
TextScore score_text(const CachedModel& model, CacheKind kind, bool reference, const std::string& name,
                     const Sample& sample, std::int64_t batch, Progress& progress);

/// What is wrong where a number that a forward gave for `what` is not finite.
InputError forward_overflow(const CachedModel& model, const std::string& what);

/// Sequences at a time: `asked`, or as many as have 4096 tokens together.
std::int64_t batch_sequences(const std::optional<std::int64_t>& asked, std::int64_t longest);

}  // namespace headspan
