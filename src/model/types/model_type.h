// What the file of a model type defines, and what it takes to say it.
//
// A type is one function, `describe_TYPE` in TYPE.cpp, where TYPE is the model_type of its config.json. It
// gets the fields of the file and a description that already holds the sizes, and is a Llama's in all else.
// It changes what differs, and refuses by name what this program cannot run.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "model/core/model_config.h"
#include "model/types/config_fields.h"

namespace headspan {

/// What describe_TYPE is.
using DescribeType = void(const ConfigFields& fields, ModelConfig& config);

/// Reads a word for the activation of the MLP. Throws InputError unless it is one of `words`.
Activation read_activation(const ConfigFields& fields,
                           const WordList<Activation>& words = {{"silu", Activation::silu}},
                           const std::string& key = "hidden_act");

/// Returns RMSNorm as Llama has it, or with `round_once` as OLMo-2 has it.
NormRule rms_norm_rule(const ConfigFields& fields, bool round_once = false);

/// Where a type's rotary embedding is described, apart from `rope_parameters` of transformers 5.
struct RopeFields {
  std::string theta = "rope_theta";
  std::optional<double> default_theta;  ///< if the file does not say; otherwise it must
  std::string share;                    ///< of the coordinates that are rotated; empty: this type rotates all
  double default_share = 1;
  std::string layers =
      "full_attention";  ///< the object within rope_parameters, where there is one for each kind
};

/// Reads the rotary embedding. transformers 5 writes `rope_parameters`, which contains all; 4.x writes
/// `rope_theta`, and `rope_scaling` if there is scaling. `type` is an old name of `rope_type`.
RopeRule read_rope(const ConfigFields& fields, const ModelConfig& config, const RopeFields& names = {});

/// Reads that of the layers with a window: the object `sliding_attention` of rope_parameters, else no scaling
/// and the theta of `names`.
RopeRule read_window_rope(const ConfigFields& fields, const ModelConfig& config, const RopeFields& names);

/// Reads which layers have the window `sliding_window`: those that `layer_types` calls sliding_attention, or
/// without it all but every period-th one.
std::vector<AttentionRule> read_windows(const ConfigFields& fields, const ModelConfig& config,
                                        std::int64_t period);

/// Reads a `sliding_window` of all layers; none if it is null.
std::vector<AttentionRule> read_window_of_all(const ConfigFields& fields, const ModelConfig& config);

/// Reads the window of layers from `max_window_layers` on, or of those that `layer_types` names; none unless
/// `use_sliding_window` is true.
std::vector<AttentionRule> read_window_of_upper_layers(const ConfigFields& fields, const ModelConfig& config);

/// Describes what Gemma 2 and 3 have in common: norms, activation, scales and biases.
void describe_gemma(const ConfigFields& fields, ModelConfig& config);

/// Refuses `mlp_bias`, for types whose MLPs have no biases.
void refuse_mlp_bias(const ConfigFields& fields, const ModelConfig& config);

}  // namespace headspan
