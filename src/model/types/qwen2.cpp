// Qwen 2 and 2.5: a Llama with biases on q, k and v.
#include "model/types/model_type.h"

namespace headspan {

void describe_qwen2(const ConfigFields& fields, ModelConfig& config) {
  RopeFields rope;
  rope.default_theta = 10000;
  config.rope = read_rope(fields, config, rope);
  config.norm = rms_norm_rule(fields);
  config.activation = read_activation(fields);
  config.qkv_bias = true;
  config.attention = read_window_of_upper_layers(fields, config);
}

}  // namespace headspan
