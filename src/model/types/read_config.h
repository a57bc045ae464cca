// Reads a Hugging Face config.json into the description of a model. What all types share is here; what one
// type has of its own is in the file of its name in this folder, which CMake finds by itself.
#pragma once

#include <string>

#include "model/core/model_config.h"

namespace headspan {

/// Reads and checks config.json, in the spelling of transformers 4.x or 5.x. Throws InputError naming the
/// file, the field, its value and what is supported.
ModelConfig read_model_config(const std::string& path);

}  // namespace headspan
