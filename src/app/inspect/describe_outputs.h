// What a single file that headspan wrote is, as describe_inputs.h for inputs. Results are not described but
// become tables (app/inspect/result_table.h).
#pragma once

#include <string>

#include "app/inspect/description.h"

namespace headspan {

/// Reads every number and checks that it can be that of a Gram (io/outputs/gram_check.h).
Description describe_gram(const std::string& path);

Description describe_plan(const std::string& path);
Description describe_codec(const std::string& path);
Description describe_archive(const std::string& path);  ///< reads every block, whose checksums must be right

}  // namespace headspan
