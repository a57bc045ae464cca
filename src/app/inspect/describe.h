// What a single input is, in a few lines for people: each function opens the file, checks it as a study
// would, and says what it found. Results are not described but become tables (app/inspect/result_table.h).
#pragma once

#include <string>

namespace headspan {

// All return complete lines, of which the first names the path and the kind, and throw InputError if the file
// is not what it should be.

/// Reads config.json and all headers. Every tensor that a study needs must be there.
std::string describe_checkpoint(const std::string& folder);

/// Reads every id to report the largest one, the number of documents if their ends are known, and the
/// SHA-256.
std::string describe_tokens(const std::string& path);

/// Reads every number and checks that it can be that of a Gram (io/outputs/gram_check.h).
std::string describe_gram(const std::string& path);

std::string describe_manifest(const std::string& path);
std::string describe_job(const std::string& path);  ///< resolved, as it will run
std::string describe_activations(const std::string& path);
std::string describe_plan(const std::string& path);
std::string describe_codec(const std::string& path);
std::string describe_archive(const std::string& path);  ///< reads every block, whose checksums must be right

}  // namespace headspan
