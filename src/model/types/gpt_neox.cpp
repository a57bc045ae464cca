// GPT-NeoX: Pythia, PolyPythias, RedPajama-INCITE. Layer norms with biases, one tensor for q, k and v, in
// blocks of a head each, a quarter of whose coordinates is rotated, an MLP without a gate, which reads the
// input of the layer beside attention.
#include "model/types/model_type.h"

namespace headspan {
namespace {

const WordList<Activation> kActivations{{"gelu", Activation::gelu},
                                        {"gelu_new", Activation::gelu_tanh},
                                        {"gelu_pytorch_tanh", Activation::gelu_tanh}};

void name_tensors(TensorNames& names) {
  names.embedding = "gpt_neox.embed_in";
  names.layers = "gpt_neox.layers.";
  names.final_norm = "gpt_neox.final_layer_norm";
  names.lm_head = "embed_out";
  names.other_lm_head = "lm_head";  // in files of transformers 5
  names.qkv = "attention.query_key_value";
  names.o = "attention.dense";
  names.up = "mlp.dense_h_to_4h";
  names.down = "mlp.dense_4h_to_h";
  names.ignored = {"attention.bias", "attention.masked_bias", "attention.rotary_emb.inv_freq"};
}

}  // namespace

void describe_gpt_neox(const ConfigFields& fields, ModelConfig& config) {
  if (config.kv_heads != config.heads || config.heads * config.head_size != config.hidden_size)
    fields.refuse("num_attention_heads", "are not the KV heads, or do not fill the hidden size",
                  "no gpt_neox has grouped queries or heads of another size");
  RopeFields rope;
  rope.theta = "rotary_emb_base";
  rope.default_theta = 10000;
  rope.share = "rotary_pct";
  rope.default_share = 0.25;
  config.rope = read_rope(fields, config, rope);
  config.norm.kind = NormKind::layer;
  config.norm.eps = fields.positive_or("layer_norm_eps", 1e-5);
  config.norm.has_bias = true;
  config.activation = read_activation(fields, kActivations);
  config.gated = false;
  config.qkv_bias = config.o_bias = fields.flag("attention_bias", true);
  config.mlp_bias = true;
  config.parallel_residual = fields.flag("use_parallel_residual", true);
  config.qkv_storage = QkvStorage::by_head;
  name_tensors(config.names);
}

}  // namespace headspan
