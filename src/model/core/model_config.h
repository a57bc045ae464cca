// What a model is: sizes, and what distinguishes its type from other types: norms, names of tensors, fused
// projections, rotary embedding, activation. The loader, the forward pass, the plan and random initialisation
// all read this description, so that none of them compares names of types. How a type fills it from
// config.json is in model/types. Not a checkpoint: no weights, no LibTorch.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "io/stream.h"

namespace headspan {

/// How a model normalises queries and keys before the rotation: not at all, over the whole projection (all
/// heads jointly), or each head separately.
enum class QkNorm { none, whole, per_head };

/// rms: x / sqrt(mean(x^2) + eps); layer: (x - mean(x)) / sqrt(var(x) + eps).
enum class NormKind { rms, layer };

/// How a norm is computed.
struct NormRule {
  NormKind kind = NormKind::rms;
  double eps = 0;
  bool has_gain = true;
  bool has_bias = false;
  double gain_offset = 0;   ///< added to the stored gains (Gemma: 1)
  bool round_once = false;  ///< in half precision the gain is applied in float32, then rounded (OLMo-2)
};

/// Scalings of the rotary frequencies, by which a model takes longer sequences than it was trained on. For
/// `rope_type = linear`: all divided by a factor.
struct LinearScaling {
  double factor = 1;
};

/// For `llama3`.
struct Llama3Scaling {
  double factor = 1;
  double low_freq_factor = 1;
  double high_freq_factor = 4;
  double original_max_positions = 0;
};

/// For `yarn` (arXiv 2309.00071): frequencies that turn fewer than beta_slow times in the original context
/// are divided by the factor, those that turn more than beta_fast times are kept.
struct YarnScaling {
  double factor = 1;
  double beta_fast = 32;
  double beta_slow = 1;
  double original_max_positions = 0;
  bool rounds_range = true;  ///< the range between the two is widened to whole coordinates
};

/// For `longrope` (arXiv 2402.13753): each divided by a factor of its own, another one in sequences longer
/// than the original context.
struct LongRopeScaling {
  std::vector<double> short_factors, long_factors;  ///< one for each pair of coordinates
  double original_max_positions = 0;
};

using RopeScaling = std::variant<std::monostate, LinearScaling, Llama3Scaling, YarnScaling, LongRopeScaling>;

/// How coordinates are rotated by position.
struct RopeRule {
  double theta = 10000;
  double share = 1;  ///< of a head's coordinates, from the first on; the others are left alone
  RopeScaling scaling;
  double length = 1;        ///< what rotated coordinates are multiplied by
  bool round_once = false;  ///< in half precision rotations are applied in float32, then rounded (OLMo)
};

/// Which of the tokens before it a query reads, and what is done to its scores before the softmax.
struct AttentionRule {
  std::int64_t window = 0;  ///< it reads itself and the window - 1 tokens before it; 0: all
  double softcap = 0;       ///< score = softcap tanh(score / softcap); 0: scores stay as they are

  bool is_plain() const { return window == 0 && softcap == 0; }
  /// Returns the first token that a query reads which sees `seen` tokens.
  std::int64_t first(std::int64_t seen) const { return window == 0 || seen < window ? 0 : seen - window; }
};

enum class Activation { silu, gelu, gelu_tanh, xielu };

/// How the rows of q, k and v are stored: as three tensors; in one, all of q, then k, then v; or in one, the
/// q, k and v of the first head, then of the second, ...
enum class QkvStorage { separate, stacked, by_head };

/// Names of tensors in a checkpoint, without ".weight" and ".bias"; of a layer, after its prefix. The name of
/// a norm is empty where a layer has none.
struct TensorNames {
  std::string embedding = "model.embed_tokens";
  std::string layers = "model.layers.";
  std::string final_norm = "model.norm";
  std::string lm_head = "lm_head";
  std::string other_lm_head;  ///< a second name of the same tensor, in some files
  std::string attention_norm_before = "input_layernorm", attention_norm_after;
  std::string mlp_norm_before = "post_attention_layernorm", mlp_norm_after;
  std::string q = "self_attn.q_proj", k = "self_attn.k_proj", v = "self_attn.v_proj";
  std::string qkv;  ///< of all three, unless they are separate
  std::string q_norm = "self_attn.q_norm", k_norm = "self_attn.k_norm";
  std::string o = "self_attn.o_proj";
  std::string gate = "mlp.gate_proj", up = "mlp.up_proj", down = "mlp.down_proj";
  std::string gate_up;  ///< of both, gate first; empty if they are separate
  std::vector<std::string> ignored = {"self_attn.rotary_emb.inv_freq"};  ///< what config.json determines too
};

struct ModelConfig {
  std::string model_type;
  std::int64_t layers = 0;
  std::int64_t hidden_size = 0;
  std::int64_t mlp_size = 0;
  std::int64_t heads = 0;     ///< query heads
  std::int64_t kv_heads = 0;  ///< divides `heads`
  std::int64_t head_size = 0;
  std::int64_t vocab_size = 0;
  std::int64_t max_positions = 0;  ///< longest sequence the model was made for; callers refuse or warn
  double initializer_range = 0;
  bool tie_word_embeddings = false;
  std::optional<std::int64_t> bos;
  std::optional<std::int64_t> pad;
  std::vector<std::int64_t> eos;  ///< empty, one or several
  std::string dtype;              ///< float32, bfloat16, ...: what the file claims for its weights, or empty

  TensorNames names;
  NormRule norm;  ///< all norms
  QkNorm qk_norm = QkNorm::none;
  RopeRule rope;
  std::optional<RopeRule> window_rope;   ///< of layers with a window; nothing: as in the others
  std::vector<bool> rotates;             ///< by layer; empty: all layers rotate
  std::vector<AttentionRule> attention;  ///< by layer; empty: plain in all
  QkvStorage qkv_storage = QkvStorage::separate;
  bool qkv_bias = false;
  bool o_bias = false;
  bool mlp_bias = false;           ///< on gate, up and down
  std::optional<double> clip_qkv;  ///< what q, k and v are clamped to right after their projection
  double embedding_scale = 1;      ///< rounded to the dtype of the forward pass
  double query_scale = 1;          ///< of scores q k / sqrt(d)
  double logit_softcap = 0;        ///< logit = cap tanh(logit / cap); 0: none
  Activation activation = Activation::silu;
  bool gated = true;               ///< down(act(gate x) * up x), else down(act(up x))
  bool parallel_residual = false;  ///< the MLP reads the input of the layer, not the output of attention

  /// Returns the heads of a layer in a stream: query heads for q and z, KV heads for k and v.
  std::int64_t heads_of(Stream stream) const {
    return stream == Stream::q || stream == Stream::z ? heads : kv_heads;
  }
  /// Returns how many coordinates of a head are rotated, in the layers that rotate.
  std::int64_t rotated_size() const {
    return static_cast<std::int64_t>(static_cast<double>(head_size) * rope.share);
  }
  bool rotates_in(std::int64_t layer) const {
    return rotates.empty() || rotates[static_cast<std::size_t>(layer)];
  }
  /// Returns whether a layer that rotates does so by window_rope.
  bool has_window_rope(std::int64_t layer) const {
    return window_rope.has_value() && attention_in(layer).window > 0;
  }
  AttentionRule attention_in(std::int64_t layer) const {
    return attention.empty() ? AttentionRule() : attention[static_cast<std::size_t>(layer)];
  }
  /// Returns whether every layer reads all tokens and leaves scores as they are.
  bool has_plain_attention() const {
    return std::all_of(attention.begin(), attention.end(),
                       [](const AttentionRule& rule) { return rule.is_plain(); });
  }
  /// Returns whether the output of attention is normalised before it is added to the residual stream.
  bool normalises_attention_output() const { return !names.attention_norm_after.empty(); }
};

}  // namespace headspan
