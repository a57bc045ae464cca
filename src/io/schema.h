// Versions of the layouts of headspan's own files, MAJOR.MINOR. What a major version has means the same in
// all its minor versions, so that one headspan reads all of them, and refuses other major ones.
#pragma once

#include <string>

namespace headspan {

/// Throws InputError unless files of this version can be read. `field`: what says so in the file; `kind`: of
/// the file, for the message ("plan").
void check_schema(const std::string& path, const std::string& field, const std::string& schema,
                  const std::string& kind);

}  // namespace headspan
