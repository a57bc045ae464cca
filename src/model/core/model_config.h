// What a Hugging Face config.json says about a model: sizes, rotary embedding, norms. The fields that
// distinguish architectures (`qk_norm`, `norm_after`, `round_once`) are derived here, so that no other file
// compares names of architectures. Not a checkpoint: no weights, no LibTorch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace headspan {

/// How a model normalises queries and keys before the rotation: not at all, over the whole projection (all
/// heads jointly), or each head separately.
enum class QkNorm { none, whole, per_head };

/// Llama 3's scaling of the rotary frequencies (`rope_type = llama3`).
struct Llama3Scaling {
  double factor = 1;
  double low_freq_factor = 1;
  double high_freq_factor = 4;
  double original_max_positions = 0;
};

struct ModelConfig {
  std::string model_type;  ///< olmo2, llama or qwen3
  std::int64_t layers = 0;
  std::int64_t hidden_size = 0;
  std::int64_t mlp_size = 0;
  std::int64_t heads = 0;     ///< query heads
  std::int64_t kv_heads = 0;  ///< divides `heads`
  std::int64_t head_size = 0;
  std::int64_t vocab_size = 0;
  std::int64_t max_positions = 0;  ///< longest sequence the model was made for; callers refuse or warn
  double norm_eps = 0;
  double rope_theta = 0;
  std::optional<Llama3Scaling> rope_scaling;
  double initializer_range = 0;
  bool attention_bias = false;  ///< on q, k, v and o
  bool mlp_bias = false;        ///< on gate, up and down
  bool tie_word_embeddings = false;
  std::optional<std::int64_t> bos;
  std::optional<std::int64_t> pad;
  std::vector<std::int64_t> eos;  ///< empty, one or several
  std::string dtype;              ///< float32, bfloat16, ...: what the file claims for its weights, or empty

  QkNorm qk_norm = QkNorm::none;
  bool norm_after = false;  ///< norms act on the output of attention and MLP (OLMo-2), not on their input
  bool round_once =
      false;  ///< in half precision gains and rotations are applied in float32, then rounded (OLMo-2)
};

/// Reads and checks config.json, in the spelling of transformers 4.x or 5.x. Throws InputError naming the
/// file, the field, its value and what is supported.
ModelConfig read_model_config(const std::string& path);

}  // namespace headspan
