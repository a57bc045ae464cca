#include "model/types/model_type.h"

#include <cmath>

namespace headspan {
namespace {

using Json = nlohmann::json;

enum class RopeType { plain, linear, llama3, yarn, longrope };

const WordList<RopeType> kRopeTypes{{"default", RopeType::plain},
                                    {"linear", RopeType::linear},
                                    {"llama3", RopeType::llama3},
                                    {"yarn", RopeType::yarn},
                                    {"longrope", RopeType::longrope}};

/// An object that describes scaling, and what else it may depend on.
struct ScalingFields {
  const ConfigFields& rope;
  const ConfigFields& all;
  const ModelConfig& config;

  /// Phi 3 has the field at the top level.
  double original_max_positions() const {
    const std::string key = "original_max_position_embeddings";
    return static_cast<double>((rope.has(key) || !all.has(key) ? rope : all).size(key));
  }

  double factor() const {
    return rope.has("factor") ? rope.positive("factor")
                              : static_cast<double>(config.max_positions) / original_max_positions();
  }
};

Llama3Scaling read_llama3(const ScalingFields& fields) {
  const ConfigFields& rope = fields.rope;
  Llama3Scaling scaling;
  scaling.factor = rope.positive("factor");
  scaling.low_freq_factor = rope.positive("low_freq_factor");
  scaling.high_freq_factor = rope.positive("high_freq_factor");
  scaling.original_max_positions = fields.original_max_positions();
  if (scaling.high_freq_factor <= scaling.low_freq_factor)
    rope.refuse("high_freq_factor", "is not above low_freq_factor", "Llama 3.1 has 4 and 1");
  return scaling;
}

YarnScaling read_yarn(const ScalingFields& fields, RopeRule& rule) {
  const ConfigFields& rope = fields.rope;
  for (const char* key : {"mscale", "mscale_all_dim"})
    if (rope.has(key)) rope.refuse(key, "is not supported", "attention_factor is");
  YarnScaling scaling;
  scaling.factor = fields.factor();
  scaling.beta_fast = rope.positive_or("beta_fast", 32);
  scaling.beta_slow = rope.positive_or("beta_slow", 1);
  scaling.original_max_positions = fields.original_max_positions();
  scaling.rounds_range = rope.flag("truncate", true);
  rule.length =
      rope.positive_or("attention_factor", scaling.factor <= 1 ? 1 : 0.1 * std::log(scaling.factor) + 1);
  return scaling;
}

std::vector<double> read_factors(const ConfigFields& rope, const std::string& key, std::int64_t count) {
  std::vector<double> factors;
  if (rope.at(key).is_array())
    for (const Json& factor : rope.at(key))
      if (factor.is_number() && factor.get<double>() > 0) factors.push_back(factor.get<double>());
  if (static_cast<std::int64_t>(factors.size()) != count)
    rope.refuse(key, "is no possible value",
                "a list of " + std::to_string(count) + " numbers above 0 is expected");
  return factors;
}

LongRopeScaling read_longrope(const ScalingFields& fields, RopeRule& rule) {
  const auto rotated = static_cast<std::int64_t>(static_cast<double>(fields.config.head_size) * rule.share);
  LongRopeScaling scaling;
  scaling.short_factors = read_factors(fields.rope, "short_factor", rotated / 2);
  scaling.long_factors = read_factors(fields.rope, "long_factor", rotated / 2);
  scaling.original_max_positions = fields.original_max_positions();
  const double factor = fields.factor();
  const double length =
      factor <= 1 ? 1 : std::sqrt(1 + std::log(factor) / std::log(scaling.original_max_positions));
  rule.length = fields.rope.positive_or("attention_factor", length);
  return scaling;
}

/// Reads what rope_parameters (`nested`) or rope_scaling says of scaling.
void read_scaling(const ScalingFields& fields, bool nested, RopeRule& rule) {
  const ConfigFields& rope = fields.rope;
  const std::string key = rope.has("rope_type") ? "rope_type" : "type";
  if (nested && !rope.has(key) && !rope.has("factor")) return;  // theta alone
  if (rope.has("type") && rope.text("type") != rope.text(key))
    rope.refuse("type", "contradicts rope_type", "give one of the two");
  switch (rope.word(key, kRopeTypes)) {
    case RopeType::plain:
      return;
    case RopeType::linear:
      rule.scaling = LinearScaling{rope.positive("factor")};
      return;
    case RopeType::llama3:
      rule.scaling = read_llama3(fields);
      return;
    case RopeType::yarn:
      rule.scaling = read_yarn(fields, rule);
      return;
    case RopeType::longrope:
      rule.scaling = read_longrope(fields, rule);
  }
}

/// Returns the share of the coordinates that are rotated, which either object may say.
double read_share(const ConfigFields& fields, const std::optional<ConfigFields>& rope,
                  const RopeFields& names) {
  const std::string nested = "partial_rotary_factor";
  const bool in_rope = rope && rope->has(nested);
  if (!in_rope && (names.share.empty() || !fields.has(names.share))) return names.default_share;
  const ConfigFields& where = in_rope ? *rope : fields;
  const std::string& key = in_rope ? nested : names.share;
  const double share = where.positive(key);
  if (names.share.empty() && share != 1) where.refuse(key, "is not supported", "only 1 is");
  if (share > 1) where.refuse(key, "is no possible value", "a number above 0, at most 1, is expected");
  return share;
}

}  // namespace

Activation read_activation(const ConfigFields& fields, const WordList<Activation>& words,
                           const std::string& key) {
  return fields.word(key, words);
}

NormRule rms_norm_rule(const ConfigFields& fields, bool round_once) {
  NormRule rule;
  rule.eps = fields.positive("rms_norm_eps");
  rule.round_once = round_once;
  return rule;
}

RopeRule read_rope(const ConfigFields& fields, const ModelConfig& config, const RopeFields& names) {
  const bool nested = fields.has("rope_parameters");
  if (nested && fields.has("rope_scaling"))
    fields.refuse("rope_scaling", "stands beside rope_parameters", "give one of the two");
  const std::string key = nested ? "rope_parameters" : "rope_scaling";
  std::optional<ConfigFields> rope = fields.has(key) ? std::optional(fields.object(key)) : std::nullopt;
  if (nested && rope->has(names.layers)) rope = rope->object(names.layers);
  RopeRule rule;
  if (nested && rope->has("rope_theta"))
    rule.theta = rope->positive("rope_theta");
  else if (fields.has(names.theta) || !names.default_theta)
    rule.theta = fields.positive(names.theta);
  else
    rule.theta = *names.default_theta;
  rule.share = read_share(fields, rope, names);
  if (rope) read_scaling({*rope, fields, config}, nested, rule);
  return rule;
}

RopeRule read_window_rope(const ConfigFields& fields, const ModelConfig& config, const RopeFields& names) {
  const std::string key = "rope_parameters", layers = "sliding_attention";
  if (fields.has(key) && fields.object(key).has(layers)) {
    RopeFields of_layers = names;
    of_layers.layers = layers;
    return read_rope(fields, config, of_layers);
  }
  RopeRule rule;
  rule.theta = fields.positive_or(names.theta, *names.default_theta);
  return rule;
}

std::vector<AttentionRule> read_windows(const ConfigFields& fields, const ModelConfig& config,
                                        std::int64_t period) {
  const auto layers = static_cast<std::size_t>(config.layers);
  std::vector<bool> slides;
  if (!fields.has("layer_types")) {
    for (std::size_t i = 1; i <= layers; ++i) slides.push_back(i % static_cast<std::size_t>(period) != 0);
  } else {
    const Json& types = fields.at("layer_types");
    if (!types.is_array() || types.size() != layers)
      fields.refuse("layer_types", "is not a list of " + std::to_string(layers) + " words",
                    "one for each layer is expected");
    for (const Json& type : types) {
      if (type != "full_attention" && type != "sliding_attention")
        fields.refuse("layer_types", "asks for layers that are not supported",
                      "full_attention and sliding_attention are");
      slides.push_back(type == "sliding_attention");
    }
  }
  std::vector<AttentionRule> rules(layers);
  for (std::size_t i = 0; i < layers; ++i)
    if (slides[i]) rules[i].window = fields.size("sliding_window");
  return rules;
}

std::vector<AttentionRule> read_window_of_all(const ConfigFields& fields, const ModelConfig& config) {
  if (!fields.has("sliding_window")) return {};
  AttentionRule rule;
  rule.window = fields.size("sliding_window");
  return std::vector<AttentionRule>(static_cast<std::size_t>(config.layers), rule);
}

std::vector<AttentionRule> read_window_of_upper_layers(const ConfigFields& fields,
                                                       const ModelConfig& config) {
  if (!fields.flag("use_sliding_window") || !fields.has("sliding_window")) return {};
  if (fields.has("layer_types")) return read_windows(fields, config, 1);
  const std::int64_t first =
      fields.has("max_window_layers") ? fields.integer("max_window_layers", 0, ConfigFields::kLargest) : 0;
  std::vector<AttentionRule> rules(static_cast<std::size_t>(config.layers));
  for (std::int64_t i = first; i < config.layers; ++i)
    rules[static_cast<std::size_t>(i)].window = fields.size("sliding_window");
  return rules;
}

void describe_gemma(const ConfigFields& fields, ModelConfig& config) {
  config.norm = rms_norm_rule(fields, true);
  config.norm.gain_offset = 1;
  config.names.attention_norm_after = "post_attention_layernorm";
  config.names.mlp_norm_before = "pre_feedforward_layernorm";
  config.names.mlp_norm_after = "post_feedforward_layernorm";
  config.activation = read_activation(
      fields, {{"gelu_pytorch_tanh", Activation::gelu_tanh}, {"gelu_new", Activation::gelu_tanh}},
      "hidden_activation");
  config.qkv_bias = config.o_bias = fields.flag("attention_bias");
  config.tie_word_embeddings = fields.flag("tie_word_embeddings", true);
  config.embedding_scale = std::sqrt(static_cast<double>(config.hidden_size));
  config.query_scale =
      std::sqrt(static_cast<double>(config.head_size) / fields.positive("query_pre_attn_scalar"));
  if (fields.has("final_logit_softcapping"))
    config.logit_softcap = fields.positive("final_logit_softcapping");
  if (fields.flag("use_bidirectional_attention"))
    fields.refuse("use_bidirectional_attention", "is not supported", "only causal attention is");
}

void refuse_mlp_bias(const ConfigFields& fields, const ModelConfig& config) {
  if (fields.flag("mlp_bias"))
    fields.refuse("mlp_bias", "is not supported for " + config.model_type,
                  "only llama and smollm3 have biases there");
}

void refuse_layer_types(const ConfigFields& fields) {
  if (!fields.has("layer_types")) return;
  for (const Json& type : fields.at("layer_types"))
    if (type != "full_attention")
      fields.refuse("layer_types", "asks for layers that are not supported", "only full_attention is");
}

}  // namespace headspan
