// Seed-OSS: a Llama with biases on q, k and v, and a second flag for that of o.
#include "model/types/model_type.h"

namespace headspan {

void describe_seed_oss(const ConfigFields& fields, ModelConfig& config) {
  RopeFields rope;
  rope.default_theta = 10000;
  config.rope = read_rope(fields, config, rope);
  config.norm = rms_norm_rule(fields);
  config.activation = read_activation(fields);
  config.qkv_bias = fields.flag("attention_bias", true);
  config.o_bias = fields.flag("attention_out_bias");
  config.mlp_bias = fields.flag("mlp_bias");
}

}  // namespace headspan
