// Llama 1 to 3.3, and every model in its clothes: SmolLM 1 and 2, Amber, TinyLlama, Falcon 3, Marin 8B.
#include "model/types/model_type.h"

namespace headspan {

void describe_llama(const ConfigFields& fields, ModelConfig& config) {
  RopeFields rope;
  rope.default_theta = 10000;  // of Llama 1 and 2, whose files do not say
  config.rope = read_rope(fields, config, rope);
  config.norm = rms_norm_rule(fields);
  config.activation = read_activation(fields);
  config.qkv_bias = config.o_bias = fields.flag("attention_bias");
  config.mlp_bias = fields.flag("mlp_bias");
}

}  // namespace headspan
