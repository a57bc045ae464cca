// SmolLM 3: a Llama in which some layers, every fourth one in the released models, do not rotate.
#include "model/types/model_type.h"

namespace headspan {

void describe_smollm3(const ConfigFields& fields, ModelConfig& config) {
  RopeFields rope;
  rope.default_theta = 2e6;
  config.rope = read_rope(fields, config, rope);
  config.norm = rms_norm_rule(fields);
  config.activation = read_activation(fields);
  config.qkv_bias = config.o_bias = fields.flag("attention_bias");
  config.mlp_bias = fields.flag("mlp_bias");
  config.tie_word_embeddings = fields.flag("tie_word_embeddings", true);
  if (fields.has("no_rope_layers")) {  // despite its name, 1 stands for a layer that rotates
    const nlohmann::json& layers = fields.at("no_rope_layers");
    if (!layers.is_array() || static_cast<std::int64_t>(layers.size()) != config.layers)
      fields.refuse("no_rope_layers", "is not a list of " + std::to_string(config.layers) + " numbers",
                    "one for each layer is expected");
    for (const nlohmann::json& layer : layers)
      config.rotates.push_back(fields.integer("no_rope_layers", layer, 0, 1) == 1);
  } else {
    const std::int64_t step =
        fields.has("no_rope_layer_interval") ? fields.size("no_rope_layer_interval") : 4;
    for (std::int64_t i = 1; i <= config.layers; ++i) config.rotates.push_back(i % step != 0);
  }
  if (fields.flag("use_sliding_window") && fields.has("sliding_window"))
    fields.refuse("use_sliding_window", "is not supported for smollm3", "no released model has it");
}

}  // namespace headspan
