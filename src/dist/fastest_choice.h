// Choices between ways to compute the same, such as the kernels of a library, by their speed on this
// processor. Each is measured once for each kind of processor and kept in a file of the user's, so that all
// processes make the same choice. Not what is measured: that is with what is chosen (dist/blas_core.h).
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

namespace headspan {

/// A choice to make.
struct Choice {
  std::string subject;                  ///< a word: the name of the file
  std::string versions;                 ///< of the software that is measured; another text is another choice
  std::vector<std::string> candidates;  ///< words
};

/// Returns `usual` unless another candidate is at least a tenth faster: less could be noise. speeds: by
/// candidate; one that does not work here is left out.
std::string fastest(const std::string& usual, const std::map<std::string, double>& speeds);

/// Returns the candidate that ~/.cache/headspan/SUBJECT-ID keeps ($XDG_CACHE_HOME/headspan/SUBJECT-ID if that
/// is set), or else what `measure` returns, which is then kept there; "" is returned and not kept. Of
/// processes that measure at the same time the first decides for all. Without a folder to write in each
/// process measures. Local.
std::string kept_choice(const Choice& choice, const std::function<std::string()>& measure);

/// Returns the least processor time of each of several ways to do some work, in seconds, on one thread of
/// OpenMP and of BLAS: other processes on its core do not add to it. They take turns, once to warm up, then
/// eleven times. Local.
std::vector<double> least_seconds(const std::vector<std::function<void()>>& ways);

}  // namespace headspan
