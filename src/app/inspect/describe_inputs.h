// What a single input is: each function opens the file, checks it as a study would, and says what it found.
// All throw InputError if the file is not what it should be.
#pragma once

#include <string>

#include "app/inspect/description.h"

namespace headspan {

/// Reads config.json and all headers. Every tensor that a study needs must be there.
Description describe_checkpoint(const std::string& folder);

/// Reads every id to report the largest one, the number of documents if their ends are known, and the
/// SHA-256.
Description describe_tokens(const std::string& path);

Description describe_manifest(const std::string& path);
Description describe_job(const std::string& path);  ///< resolved, as it will run
Description describe_activations(const std::string& path);

}  // namespace headspan
