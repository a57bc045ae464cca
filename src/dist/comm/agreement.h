// Agreement: ranks learn together whether a step that each did on its own succeeded. Every step that may fail
// on one rank alone (opening a file, checking its header) runs inside `agree` before the ranks meet in a
// collective call.
#pragma once

#include <functional>

#include "dist/comm/mpi.h"

namespace headspan {

/// Thrown on every rank alike after `agree` found that some rank failed. `exit_code` is 2 for InputError,
/// else 1. `what()` is the line of the lowest failing rank, to be told once, by rank 0; with exit code 1 it
/// begins with "rank R: ", R in the world, for the environment may have failed on that rank's node alone.
class AgreedError : public std::runtime_error {
 public:
  AgreedError(const std::string& what, int exit_code) : std::runtime_error(what), exit_code_(exit_code) {}
  int exit_code() const { return exit_code_; }

 private:
  int exit_code_;
};

/// Runs `step`, which must not communicate over `comm`, then compares notes: if it threw InputError, Error or
/// std::exception (bad_alloc among them) on any rank, AgreedError is thrown on all. Collective.
void agree(const Comm& comm, const std::function<void()>& step);

}  // namespace headspan
