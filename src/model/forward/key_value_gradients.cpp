#include "model/forward/key_value_gradients.h"

#include <cmath>
#include <limits>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include "base/checked.h"
#include "model/forward/activation.h"

namespace headspan {
namespace {

constexpr std::int64_t kLogitRows = 64;  // at a time

at::Tensor clamped(const at::Tensor& x, const std::optional<double>& bound) {
  return bound ? x.clamp(-*bound, *bound) : x;
}

/// Returns the attention of one sequence. q: [length, heads, d], k and v: [length, kv_heads, d].
at::Tensor attended(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                    const AttentionRule& rule) {
  const std::int64_t length = q.size(0), kv_heads = k.size(1), d = q.size(2);
  const at::Tensor token = at::arange(length, at::dtype(at::kLong).device(q.device())),
                   back = token.unsqueeze(1) - token;
  at::Tensor hidden = back.lt(0);
  if (rule.window > 0) hidden = hidden.logical_or(back.ge(rule.window));
  const at::Tensor queries =
      q.view({length, kv_heads, -1, d}).permute({1, 2, 0, 3});  // [kv, group, length, d]
  at::Tensor scores =
      at::matmul(queries, k.permute({1, 2, 0}).unsqueeze(1)) / std::sqrt(static_cast<double>(d));
  if (rule.softcap > 0) scores = at::tanh(scores / rule.softcap) * rule.softcap;
  const at::Tensor weights =
      at::softmax(scores.masked_fill(hidden, -std::numeric_limits<double>::infinity()), -1);
  return at::matmul(weights, v.transpose(0, 1).unsqueeze(1)).permute({2, 0, 1, 3}).reshape({length, -1});
}

/// What a layer makes of the residual stream.
struct LayerValues {
  at::Tensor x, k, v;  // k before the rotary embedding
};

class PlainForward {
 public:
  PlainForward(const Transformer& model, const PackedBatch& batch)
      : model_(model),
        config_(model.config()),
        batch_(batch),
        wide_(model.dtype() == at::kDouble ? at::kDouble : at::kFloat) {
    const std::vector<std::int64_t> starts(batch.lengths.size(), 0);
    const auto table = [&](const RopeRule& rule) {
      const RopeTable host = make_rope_table(rule, config_.rotated_size(), {starts, batch.lengths}, wide_);
      return RopeTable{host.cos.to(model.device()), host.sin.to(model.device())};
    };
    rope_ = table(config_.rope);
    if (config_.window_rope) window_rope_ = table(*config_.window_rope);
  }

  /// Returns the residual stream before each layer and after the last one, without gradients.
  std::vector<at::Tensor> residuals() const {
    const c10::NoGradGuard records_nothing;
    const at::Tensor ids = at::tensor(batch_.tokens, at::kLong).to(model_.device());
    std::vector<at::Tensor> x{own(model_.weights().embedding.index_select(0, ids)) * config_.embedding_scale};
    for (std::int64_t number = 0; number < config_.layers; ++number) x.push_back(layer(number, x.back()).x);
    return x;
  }

  LayerValues layer(std::int64_t number, const at::Tensor& x) const {
    const LayerWeights& weights = model_.weights().layers[to_size(number)];
    const TensorNames& names = config_.names;
    const at::Tensor input = norm_if(names.attention_norm_before, x, weights.attention_norm_before);
    const at::Tensor q = norm_heads(projected(weights.q, input), weights.q_norm) * config_.query_scale;
    LayerValues values{
        {}, norm_heads(projected(weights.k, input), weights.k_norm), projected(weights.v, input)};
    const at::Tensor block = linear(weights.o, attention(number, q, values.k, values.v));
    const at::Tensor sum = x + norm_if(names.attention_norm_after, block, weights.attention_norm_after);
    const at::Tensor read =
        norm_if(names.mlp_norm_before, config_.parallel_residual ? x : sum, weights.mlp_norm_before);
    values.x = sum + norm_if(names.mlp_norm_after, mlp(weights, read), weights.mlp_norm_after);
    return values;
  }

  at::Tensor final(const at::Tensor& x) const { return norm(x, model_.weights().final_norm); }

  at::Tensor capped(const at::Tensor& logits) const {
    const double cap = config_.logit_softcap;
    return cap > 0 ? at::tanh(logits / cap) * cap : logits;
  }

  at::Tensor head() const { return model_.weights().lm_head.to(wide_); }

 private:
  /// Tensors made in inference mode cannot be saved for gradients: returns a copy that can where these are
  /// recorded.
  at::Tensor own(const at::Tensor& weight) const {
    const bool copies = c10::GradMode::is_enabled();
    return weight.defined() ? weight.to(wide_, /*non_blocking=*/false, copies) : weight;
  }

  at::Tensor linear(const Linear& layer, const at::Tensor& x) const {
    return at::linear(x, own(layer.weight), own(layer.bias));
  }

  at::Tensor projected(const Linear& layer, const at::Tensor& x) const {
    return clamped(linear(layer, x), config_.clip_qkv).view({x.size(0), -1, config_.head_size});
  }

  at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& gain) const {
    return x * (x.square().mean(-1, true) + config_.norm.eps).rsqrt() *
           (own(gain) + config_.norm.gain_offset);
  }

  at::Tensor norm(const at::Tensor& x, const NormWeights& weights) const {
    if (config_.norm.kind == NormKind::layer)
      return at::layer_norm(x, {x.size(-1)}, own(weights.gain), own(weights.bias), config_.norm.eps);
    return rms_norm(x, weights.gain);
  }

  at::Tensor norm_if(const std::string& name, const at::Tensor& x, const NormWeights& weights) const {
    return name.empty() ? x : norm(x, weights);
  }

  at::Tensor norm_heads(const at::Tensor& x, const at::Tensor& gain) const {
    if (config_.qk_norm == QkNorm::none) return x;
    if (config_.qk_norm == QkNorm::per_head) return rms_norm(x, gain);
    return rms_norm(x.view({x.size(0), -1}), gain).view(x.sizes());
  }

  at::Tensor attention(std::int64_t number, at::Tensor q, at::Tensor k, const at::Tensor& v) const {
    if (config_.rotates_in(number)) {
      const RopeTable& table = config_.has_window_rope(number) ? window_rope_ : rope_;
      q = rotate_plain(q, table);
      k = rotate_plain(k, table);
    }
    std::vector<at::Tensor> parts;
    std::int64_t first = 0;
    for (const std::int64_t length : batch_.lengths) {
      const auto part = [&](const at::Tensor& x) { return x.narrow(0, first, length); };
      parts.push_back(attended(part(q), part(k), part(v), config_.attention_in(number)));
      first += length;
    }
    return at::cat(parts);
  }

  at::Tensor mlp(const LayerWeights& weights, const at::Tensor& x) const {
    const at::Tensor gate = linear(config_.gated ? weights.gate : weights.up, x),
                     active = activated(config_.activation, own_xielu(weights.xielu), gate);
    return linear(weights.down, config_.gated ? active * linear(weights.up, x) : active);
  }

  XieluWeights own_xielu(const XieluWeights& weights) const {
    return {own(weights.alpha_p), own(weights.alpha_n), own(weights.beta), own(weights.eps)};
  }

  const Transformer& model_;
  const ModelConfig& config_;
  const PackedBatch& batch_;
  at::ScalarType wide_;
  RopeTable rope_, window_rope_;
};

/// Draws a token after each row of hidden states; returns the gradient of the log-probabilities by these.
at::Tensor drawn_gradient(const PlainForward& forward, double cap, const at::Tensor& weight,
                          const at::Tensor& hidden, const std::vector<double>& uniforms) {
  std::vector<at::Tensor> parts;
  for (std::int64_t first = 0; first < hidden.size(0); first += kLogitRows) {
    const std::int64_t count = std::min(kLogitRows, hidden.size(0) - first);
    const at::Tensor logits = forward.capped(at::linear(hidden.narrow(0, first, count), weight)),
                     probabilities = at::softmax(logits.to(at::kDouble), 1);
    const at::Tensor uniform =
        at::tensor(at::ArrayRef<double>(uniforms.data() + first, to_size(count)), at::kDouble)
            .to(hidden.device())
            .unsqueeze(1);
    const at::Tensor drawn =
        probabilities.cumsum(1).le(uniform).sum(1, true).clamp_max(probabilities.size(1) - 1);
    at::Tensor by_logits = -probabilities;
    by_logits.scatter_add_(1, drawn, at::ones_like(drawn, by_logits.options()));
    if (cap > 0) by_logits = by_logits * (1 - (logits.to(at::kDouble) / cap).square());
    parts.push_back(at::matmul(by_logits.to(weight.scalar_type()), weight));
  }
  return at::cat(parts);
}

/// Returns the gradients of outputs times `by_output`, by the inputs.
std::vector<at::Tensor> gradients(const at::Tensor& output, const at::Tensor& by_output,
                                  const std::vector<at::Tensor>& inputs) {
  return torch::autograd::grad({output}, inputs, {by_output});
}

}  // namespace

void key_value_gradients(const Transformer& model, const PackedBatch& batch,
                         const std::vector<double>& uniforms, const GradientSink& sink) {
  HS_ASSERT(uniforms.size() == batch.tokens.size());
  const PlainForward forward(model, batch);
  const std::vector<at::Tensor> inputs = forward.residuals();
  const c10::AutoGradMode records(true);
  const auto leaf = [](const at::Tensor& x) { return x.detach().requires_grad_(true); };
  const at::Tensor last = leaf(inputs.back()), hidden = forward.final(last);
  at::Tensor by_output = gradients(
      hidden,
      drawn_gradient(forward, model.config().logit_softcap, forward.head(), hidden.detach(), uniforms),
      {last})[0];
  for (std::int64_t layer = model.config().layers - 1; layer >= 0; --layer) {
    const at::Tensor x = leaf(inputs[to_size(layer)]);
    const LayerValues values = forward.layer(layer, x);
    const std::vector<at::Tensor> found = gradients(values.x, by_output, {x, values.k, values.v});
    sink(layer, Stream::k, found[1]);
    sink(layer, Stream::v, found[2]);
    by_output = found[0];
  }
}

std::vector<double> gradient_products(const at::Tensor& gradients, std::int64_t first) {
  const at::Tensor g = gradients.narrow(0, first, gradients.size(0) - first)
                           .to(at::kDouble)
                           .transpose(0, 1);  // [heads, tokens, d]
  const at::Tensor products = at::matmul(g.transpose(1, 2), g).to(at::kCPU).contiguous();
  return {products.data_ptr<double>(), products.data_ptr<double>() + products.numel()};
}

at::Tensor plain_logits(const Transformer& model, const PackedBatch& batch) {
  const c10::NoGradGuard records_nothing;
  const PlainForward forward(model, batch);
  return forward.capped(at::linear(forward.final(forward.residuals().back()), forward.head()));
}

}  // namespace headspan
