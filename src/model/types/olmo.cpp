// OLMo 1: layer norms without gain and bias, and in some models queries, keys and values that are clamped.
#include "model/types/model_type.h"

namespace headspan {

void describe_olmo(const ConfigFields& fields, ModelConfig& config) {
  RopeFields rope;
  rope.default_theta = 10000;
  config.rope = read_rope(fields, config, rope);
  config.rope.round_once = true;
  config.norm.kind = NormKind::layer;
  config.norm.eps = 1e-5;  // the file may have rms_norm_eps, which the model does not use
  config.norm.has_gain = false;
  config.activation = read_activation(fields);
  config.qkv_bias = config.o_bias = fields.flag("attention_bias");
  if (fields.has("clip_qkv")) config.clip_qkv = fields.positive("clip_qkv");
}

}  // namespace headspan
