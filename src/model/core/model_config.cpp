#include "model/core/model_config.h"

#include "base/error.h"
#include "base/input_file.h"
#include "base/printable.h"
#include "base/word_list.h"
#include "io/json_text.h"

namespace headspan {
namespace {

using Json = nlohmann::json;

constexpr std::int64_t kLargest =
    std::int64_t{1} << 24;  // of any size in the file: the product of two sizes and 8 bytes fits into 64 bits

/// One object of the file: typed, checked access to its fields. A field that is null counts as absent.
class Fields {
 public:
  Fields(std::string file, std::string prefix, Json object)
      : file_(std::move(file)), prefix_(std::move(prefix)), object_(std::move(object)) {}

  bool has(const std::string& key) const { return object_.contains(key) && !object_[key].is_null(); }

  const Json& at(const std::string& key) const {
    if (!has(key)) throw InputError(file_, prefix_ + key, "", "is missing", "this model type needs it");
    return object_[key];
  }

  Fields object(const std::string& key) const {
    if (!at(key).is_object()) refuse(key, "is not an object", "a JSON object is expected");
    return Fields(file_, prefix_ + key + ".", at(key));
  }

  std::int64_t integer(const std::string& key, std::int64_t smallest, std::int64_t largest) const {
    return integer(key, at(key), smallest, largest);
  }

  /// Does the same for `value`, which was found in the field `key`.
  std::int64_t integer(const std::string& key, const Json& value, std::int64_t smallest,
                       std::int64_t largest) const {
    const bool fits = value.is_number_unsigned() ? value.get<std::uint64_t>() <= std::uint64_t{INT64_MAX}
                                                 : value.is_number_integer();
    if (!fits || value.get<std::int64_t>() < smallest || value.get<std::int64_t>() > largest)
      refuse(
          key, "is no possible value",
          "an integer from " + std::to_string(smallest) + " to " + std::to_string(largest) + " is expected");
    return value.get<std::int64_t>();
  }

  std::int64_t size(const std::string& key) const { return integer(key, 1, kLargest); }

  double positive(const std::string& key) const {
    const Json& value = at(key);
    if (!value.is_number() || !(value.get<double>() > 0))
      refuse(key, "is no possible value", "a number above 0 is expected");
    return value.get<double>();
  }

  bool flag(const std::string& key) const {
    if (!has(key)) return false;
    if (!at(key).is_boolean()) refuse(key, "is no possible value", "true or false is expected");
    return at(key).get<bool>();
  }

  std::string text(const std::string& key) const {
    if (!at(key).is_string()) refuse(key, "is not a text", "a JSON string is expected");
    return at(key).get<std::string>();
  }

  [[noreturn]] void refuse(const std::string& key, const std::string& wrong, const std::string& right) const {
    throw InputError(file_, prefix_ + key, printable(at(key).dump()), wrong, right);
  }

 private:
  std::string file_;
  std::string prefix_;  // of field names in messages
  Json object_;
};

Fields parse(const std::string& path) {
  return Fields(path, "", parse_json(path, read_small_file(path), "fetch or write it again"));
}

enum class ModelType { olmo2, llama, qwen3 };

ModelType read_architecture(const Fields& fields, ModelConfig& config) {
  static const WordList<ModelType> words{
      {"olmo2", ModelType::olmo2}, {"llama", ModelType::llama}, {"qwen3", ModelType::qwen3}};
  config.model_type = fields.text("model_type");
  const auto type = value_of(words, config.model_type);
  if (!type) fields.refuse("model_type", "is not supported", "olmo2, llama and qwen3 are");
  if (*type == ModelType::olmo2) {
    config.qk_norm = QkNorm::whole;
    config.norm_after = config.round_once = true;
  } else if (*type == ModelType::qwen3) {
    config.qk_norm = QkNorm::per_head;
  }
  if (fields.text("hidden_act") != "silu") fields.refuse("hidden_act", "is not supported", "only silu is");
  return *type;
}

void read_sizes(const Fields& fields, ModelType type, ModelConfig& config) {
  config.layers = fields.integer("num_hidden_layers", 1, 1 << 16);
  config.hidden_size = fields.size("hidden_size");
  config.mlp_size = fields.size("intermediate_size");
  config.vocab_size = fields.size("vocab_size");
  config.max_positions = fields.size("max_position_embeddings");
  config.heads = fields.size("num_attention_heads");
  config.kv_heads = fields.has("num_key_value_heads") ? fields.size("num_key_value_heads") : config.heads;
  if (config.heads % config.kv_heads != 0)
    fields.refuse("num_key_value_heads",
                  "does not divide the " + std::to_string(config.heads) + " attention heads",
                  "every KV head serves the same number of query heads");
  if (fields.has("head_dim") || type == ModelType::qwen3) {
    config.head_size = fields.size("head_dim");
  } else {
    if (config.hidden_size % config.heads != 0)
      fields.refuse("hidden_size",
                    "is not a multiple of the " + std::to_string(config.heads) + " attention heads",
                    "give head_dim where it is not hidden_size / num_attention_heads");
    config.head_size = config.hidden_size / config.heads;
  }
  const std::string head_field = fields.has("head_dim") ? "head_dim" : "hidden_size";
  if (config.head_size % 2 != 0)
    fields.refuse(head_field, "makes heads of " + std::to_string(config.head_size) + " coordinates",
                  "rotary embedding needs an even number");
  if (config.heads * config.head_size > kLargest)
    fields.refuse(head_field,
                  "makes projections of " + std::to_string(config.heads * config.head_size) + " rows",
                  std::to_string(kLargest) + " are the most");
}

Llama3Scaling read_llama3(const Fields& rope) {
  Llama3Scaling scaling;
  scaling.factor = rope.positive("factor");
  scaling.low_freq_factor = rope.positive("low_freq_factor");
  scaling.high_freq_factor = rope.positive("high_freq_factor");
  scaling.original_max_positions = static_cast<double>(rope.size("original_max_position_embeddings"));
  if (scaling.high_freq_factor <= scaling.low_freq_factor)
    rope.refuse("high_freq_factor", "is not above low_freq_factor", "Llama 3.1 has 4 and 1");
  return scaling;
}

/// Reads the rotary embedding. transformers 5 writes `rope_parameters`, which contains rope_theta; 4.x writes
/// `rope_theta`, and `rope_scaling` if there is scaling. `type` is an old name of `rope_type`. Files of Llama
/// 1 and 2 have no rope_theta, which is 10000 then.
void read_rope(const Fields& fields, ModelType model, ModelConfig& config) {
  const bool nested = fields.has("rope_parameters");
  if (nested && fields.has("rope_scaling"))
    fields.refuse("rope_scaling", "stands beside rope_parameters", "give one of the two");
  const std::string key = nested ? "rope_parameters" : "rope_scaling";
  if (nested && fields.object(key).has("rope_theta"))
    config.rope_theta = fields.object(key).positive("rope_theta");
  else if (nested || fields.has("rope_theta") || model != ModelType::llama)
    config.rope_theta = fields.positive("rope_theta");
  else
    config.rope_theta = 10000;
  if (!fields.has(key)) return;

  const Fields rope = fields.object(key);
  const std::string type_key = rope.has("rope_type") ? "rope_type" : "type";
  const std::string type = nested && !rope.has(type_key) ? "default" : rope.text(type_key);
  if (rope.has("type") && rope.text("type") != type)
    rope.refuse("type", "contradicts rope_type", "give one of the two");
  if (type == "llama3")
    config.rope_scaling = read_llama3(rope);
  else if (type != "default")
    rope.refuse(type_key, "is not supported", "default and llama3 are");
  if (rope.has("partial_rotary_factor") && rope.positive("partial_rotary_factor") != 1)
    rope.refuse("partial_rotary_factor", "is not supported", "only 1 is");
}

/// Refuses sliding windows, except one that never hides a key within max_position_embeddings.
void refuse_sliding_windows(const Fields& fields, ModelType type, const ModelConfig& config) {
  if (fields.has("layer_types"))
    for (const Json& type : fields.at("layer_types"))
      if (type != "full_attention")
        fields.refuse("layer_types", "asks for layers that are not supported", "only full_attention is");
  if (type != ModelType::qwen3 || !fields.flag("use_sliding_window") || !fields.has("sliding_window")) return;
  const bool acts_somewhere =
      !fields.has("max_window_layers") || fields.integer("max_window_layers", 0, kLargest) < config.layers;
  if (acts_somewhere && fields.size("sliding_window") < config.max_positions)
    fields.refuse("sliding_window", "would act, which is not supported", "only full attention is");
}

void read_special_tokens(const Fields& fields, ModelConfig& config) {
  const auto token = [&](const std::string& key) -> std::optional<std::int64_t> {
    if (!fields.has(key)) return std::nullopt;
    return fields.integer(key, -1, kLargest);
  };
  config.bos = token("bos_token_id");
  config.pad = token("pad_token_id");
  if (!fields.has("eos_token_id")) return;
  if (!fields.at("eos_token_id").is_array()) {
    config.eos = {*token("eos_token_id")};
    return;
  }
  for (const Json& id : fields.at("eos_token_id"))
    config.eos.push_back(fields.integer("eos_token_id", id, -1, kLargest));
}

}  // namespace

ModelConfig read_model_config(const std::string& path) {
  const Fields fields = parse(path);
  ModelConfig config;
  const ModelType type = read_architecture(fields, config);
  read_sizes(fields, type, config);
  read_rope(fields, type, config);
  refuse_sliding_windows(fields, type, config);
  read_special_tokens(fields, config);
  config.norm_eps = fields.positive("rms_norm_eps");
  config.initializer_range = fields.has("initializer_range") ? fields.positive("initializer_range") : 0.02;
  config.attention_bias = fields.flag("attention_bias");
  config.mlp_bias = fields.flag("mlp_bias");
  if (config.mlp_bias && type != ModelType::llama)
    fields.refuse("mlp_bias", "is not supported for " + config.model_type, "only llama has biases there");
  config.tie_word_embeddings = fields.flag("tie_word_embeddings");
  for (const char* key : {"torch_dtype", "dtype"})
    if (fields.has(key)) config.dtype = fields.text(key);
  return config;
}

}  // namespace headspan
