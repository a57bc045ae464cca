// Computes the loss of a model on texts with one kind of KV cache, and its divergence from the full cache.
#pragma once

#include <string>

#include "app/run/cached_model.h"
#include "app/run/sample.h"
#include "base/error.h"
#include "base/log.h"

namespace headspan {

/// A text to score.
struct Text {
  std::string name;  ///< of its file, without folder and last extension
  Sample sample;
};

/// The score of a text, in nats per predicted token. Standard errors (_se) are those of a ratio of sums over
/// sequences. What was not requested, or cannot be estimated from a single sequence, is NaN.
struct TextScore {
  std::int64_t tokens = 0;  ///< predicted: all but the first of each sequence
  double loss = 0, loss_se = 0;
  double full_loss = 0;            ///< with the full cache
  double dloss = 0, dloss_se = 0;  ///< loss - full_loss
  double kl = 0, kl_se = 0;        ///< KL(full cache || this cache)
};

/// Scores a text with the cache of evaluate.cache, and with the full cache too if evaluate.reference asks for
/// it. Throws AgreedError naming the text if its loss is not finite. Collective over the group.
TextScore score_text(const CachedModel& model, const Job::Evaluate& rule, const Text& text, const Log& log);

/// Returns how many sequences a batch has: `asked`, or as many as have 4096 tokens together, from 1 to 64.
std::int64_t batch_sequences(const std::optional<std::int64_t>& asked, std::int64_t longest);

}  // namespace headspan
