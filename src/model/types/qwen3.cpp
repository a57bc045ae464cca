// Qwen 3: each head of queries and keys is normalised before it is rotated.
#include "model/types/model_type.h"

namespace headspan {

void describe_qwen3(const ConfigFields& fields, ModelConfig& config) {
  fields.size("head_dim");  // is not hidden_size / num_attention_heads, so the file must say it
  config.rope = read_rope(fields, config);
  config.norm = rms_norm_rule(fields);
  config.qk_norm = QkNorm::per_head;
  config.activation = read_activation(fields);
  config.qkv_bias = config.o_bias = fields.flag("attention_bias");
  refuse_mlp_bias(fields, config);
  config.attention = read_window_of_upper_layers(fields, config);
}

}  // namespace headspan
