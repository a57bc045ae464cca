// Gemma 2: norms before and after attention and MLP, whose stored gains lack 1; embeddings times the square
// root of the hidden size; caps of scores and logits; every other layer has a window.
#include <cmath>

#include "model/types/model_type.h"

namespace headspan {

void describe_gemma2(const ConfigFields& fields, ModelConfig& config) {
  RopeFields rope;
  rope.default_theta = 10000;
  config.rope = read_rope(fields, config, rope);
  describe_gemma(fields, config);
  config.attention = read_windows(fields, config, 2);
  if (fields.has("attn_logit_softcapping"))
    for (AttentionRule& rule : config.attention) rule.softcap = fields.positive("attn_logit_softcapping");
}

}  // namespace headspan
