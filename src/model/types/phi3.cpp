// Phi 3 and 4: a Llama with one tensor for q, k and v and one for gate and up; Phi-4-mini rotates three
// quarters of the coordinates.
#include "model/types/model_type.h"

namespace headspan {

void describe_phi3(const ConfigFields& fields, ModelConfig& config) {
  RopeFields rope;
  rope.default_theta = 10000;
  rope.share = "partial_rotary_factor";
  config.rope = read_rope(fields, config, rope);
  config.norm = rms_norm_rule(fields);
  config.activation = read_activation(fields);
  config.qkv_storage = QkvStorage::stacked;
  config.names.qkv = "self_attn.qkv_proj";
  config.names.gate_up = "mlp.gate_up_proj";
  config.attention = read_window_of_all(fields, config);
}

}  // namespace headspan
