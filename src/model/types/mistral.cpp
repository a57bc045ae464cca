// Mistral: a Llama that may have a sliding window (null in all since 7B v0.2).
#include "model/types/model_type.h"

namespace headspan {

void describe_mistral(const ConfigFields& fields, ModelConfig& config) {
  RopeFields rope;
  rope.default_theta = 10000;
  config.rope = read_rope(fields, config, rope);
  config.norm = rms_norm_rule(fields);
  config.activation = read_activation(fields);
  config.attention = read_window_of_all(fields, config);
}

}  // namespace headspan
