#include "model/types/read_config.h"

#include <map>

#include "model/types/model_type.h"

namespace headspan {

// All types: CMake writes a line TYPE(name) for each file of this folder that defines one.
#define TYPE(name) DescribeType describe_##name;
#include "model_types.inc"
#undef TYPE

namespace {

using Json = nlohmann::json;

const std::map<std::string, DescribeType*>& model_types() {
  static const std::map<std::string, DescribeType*> types{
#define TYPE(name) {#name, describe_##name},
#include "model_types.inc"
#undef TYPE
  };
  return types;
}

DescribeType& type_of(const ConfigFields& fields) {
  const auto found = model_types().find(fields.text("model_type"));
  if (found != model_types().end()) return *found->second;
  std::vector<std::string> names;
  for (const auto& [name, describe] : model_types()) names.push_back(name);
  fields.refuse("model_type", "is not supported", supported(names));
}

void read_heads(const ConfigFields& fields, ModelConfig& config) {
  config.heads = fields.size("num_attention_heads");
  config.kv_heads = fields.has("num_key_value_heads") ? fields.size("num_key_value_heads") : config.heads;
  if (config.heads % config.kv_heads != 0)
    fields.refuse("num_key_value_heads",
                  "does not divide the " + std::to_string(config.heads) + " attention heads",
                  "every KV head serves the same number of query heads");
  const bool given = fields.has("head_dim");
  if (!given && config.hidden_size % config.heads != 0)
    fields.refuse("hidden_size",
                  "is not a multiple of the " + std::to_string(config.heads) + " attention heads",
                  "give head_dim where it is not hidden_size / num_attention_heads");
  config.head_size = given ? fields.size("head_dim") : config.hidden_size / config.heads;
  const std::string head_field = given ? "head_dim" : "hidden_size";
  if (config.head_size % 2 != 0)
    fields.refuse(head_field, "makes heads of " + std::to_string(config.head_size) + " coordinates",
                  "rotary embedding needs an even number");
  if (config.heads * config.head_size > ConfigFields::kLargest)
    fields.refuse(head_field,
                  "makes projections of " + std::to_string(config.heads * config.head_size) + " rows",
                  std::to_string(ConfigFields::kLargest) + " are the most");
}

void read_sizes(const ConfigFields& fields, ModelConfig& config) {
  config.layers = fields.integer("num_hidden_layers", 1, 1 << 16);
  config.hidden_size = fields.size("hidden_size");
  config.mlp_size = fields.size("intermediate_size");
  config.vocab_size = fields.size("vocab_size");
  config.max_positions = fields.size("max_position_embeddings");
  read_heads(fields, config);
}

void read_special_tokens(const ConfigFields& fields, ModelConfig& config) {
  const auto token = [&](const std::string& key) -> std::optional<std::int64_t> {
    if (!fields.has(key)) return std::nullopt;
    return fields.integer(key, -1, ConfigFields::kLargest);
  };
  config.bos = token("bos_token_id");
  config.pad = token("pad_token_id");
  if (!fields.has("eos_token_id")) return;
  if (!fields.at("eos_token_id").is_array()) {
    config.eos = {*token("eos_token_id")};
    return;
  }
  for (const Json& id : fields.at("eos_token_id"))
    config.eos.push_back(fields.integer("eos_token_id", id, -1, ConfigFields::kLargest));
}

/// Refuses layers with another attention than to all earlier tokens, for types that have none. A window that
/// another key switches off says nothing.
void refuse_windows(const ConfigFields& fields, const ModelConfig& config) {
  if (!config.attention.empty()) return;
  const bool has_switch = fields.has("use_sliding_window") || fields.has("max_window_layers");
  if (fields.has("sliding_window") && (fields.flag("use_sliding_window") || !has_switch))
    fields.refuse("sliding_window", "is no key of " + config.model_type,
                  "leave it out if every layer attends to all earlier tokens");
  if (!fields.has("layer_types")) return;
  for (const Json& type : fields.at("layer_types"))
    if (type != "full_attention")
      fields.refuse("layer_types", "asks for layers that are not supported",
                    "only full_attention is for " + config.model_type);
}

void check_rotation(const ConfigFields& fields, const ModelConfig& config) {
  const std::int64_t rotated = config.rotated_size();
  if (rotated < 2 || rotated % 2 != 0)
    fields.refuse("num_attention_heads",
                  "makes heads of which " + std::to_string(rotated) + " coordinates are rotated",
                  "rotary embedding needs an even number");
}

}  // namespace

ModelConfig read_model_config(const std::string& path) {
  const ConfigFields fields(path);
  ModelConfig config;
  DescribeType& describe = type_of(fields);
  config.model_type = fields.text("model_type");
  read_sizes(fields, config);
  read_special_tokens(fields, config);
  config.initializer_range = fields.positive_or("initializer_range", 0.02);
  config.tie_word_embeddings = fields.flag("tie_word_embeddings");
  for (const char* key : {"torch_dtype", "dtype"})
    if (fields.has(key)) config.dtype = fields.text(key);
  describe(fields, config);
  refuse_windows(fields, config);
  check_rotation(fields, config);
  return config;
}

}  // namespace headspan
