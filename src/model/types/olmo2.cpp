// OLMo 2: norms after attention and MLP instead of before, and of all queries and of all keys together.
#include "model/types/model_type.h"

namespace headspan {

void describe_olmo2(const ConfigFields& fields, ModelConfig& config) {
  config.rope = read_rope(fields, config);
  config.rope.round_once = true;
  config.norm = rms_norm_rule(fields, true);
  config.names.attention_norm_before = config.names.mlp_norm_before = "";
  config.names.attention_norm_after = "post_attention_layernorm";
  config.names.mlp_norm_after = "post_feedforward_layernorm";
  config.qk_norm = QkNorm::whole;
  config.activation = read_activation(fields);
  config.qkv_bias = config.o_bias = fields.flag("attention_bias");
  refuse_mlp_bias(fields, config);
}

}  // namespace headspan
