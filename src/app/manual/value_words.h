// What can stand for the value of a key of a job, as far as a shell can complete it.
#pragma once

#include <string>
#include <vector>

#include "app/job/job_options.h"

namespace headspan {

/// Returns the words that the key's `allowed` names ("auto", "cpu", "cuda"); none for numbers and free text.
std::vector<std::string> value_words(const JobOption& option);

/// Returns whether the value is a path, or a list of them.
bool takes_path(const JobOption& option);

}  // namespace headspan
