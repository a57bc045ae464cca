// Apertus: a Llama with norms of each head of queries and keys, and an MLP without a gate, whose activation
// (xIELU) has two trained numbers in each layer.
#include "model/types/model_type.h"

namespace headspan {

void describe_apertus(const ConfigFields& fields, ModelConfig& config) {
  RopeFields rope;
  rope.default_theta = 12e6;
  config.rope = read_rope(fields, config, rope);
  config.norm = rms_norm_rule(fields);
  config.names.attention_norm_before = "attention_layernorm";
  config.names.mlp_norm_before = "feedforward_layernorm";
  config.qk_norm = QkNorm::per_head;
  config.activation = read_activation(fields, {{"xielu", Activation::xielu}});
  config.gated = false;
  config.qkv_bias = config.o_bias = fields.flag("attention_bias");
  refuse_mlp_bias(fields, config);
}

}  // namespace headspan
