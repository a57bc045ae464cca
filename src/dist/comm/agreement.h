// Agreement: all ranks learn whether a local step succeeded on every rank. Every step that may fail on one
// rank alone (opening a file, checking its header) runs inside `agree` before the next collective call.
#pragma once

#include <functional>

#include "dist/comm/mpi.h"

namespace headspan {

/// Thrown on every rank after `agree` found that one has failed. `exit_code` is 2 for InputError, otherwise
/// 1. `what()` is the message of the lowest failing rank, which rank 0 prints. With exit code 1 it begins
/// with "rank R: ", the rank in MPI_COMM_WORLD, because the environment may have failed on that rank's node
/// alone.
class AgreedError : public std::runtime_error {
 public:
  AgreedError(const std::string& what, int exit_code);
  AgreedError(const AgreedError& other) noexcept;
  ~AgreedError() override;
  int exit_code() const { return exit_code_; }

 private:
  int exit_code_;
};

/// Returns whether an exception unwinds the stack of this rank alone: one that is no AgreedError. A
/// destructor must then not communicate. Local.
bool unwinds_alone();

/// Runs `step`, which must not communicate over `comm`. If it threw InputError, Error or std::exception (such
/// as bad_alloc) on any rank, throws AgreedError on all. A rank that failed, not with InputError, and waits
/// for the others for 20 s, or three times as long as any step took before, ends the job with its message:
/// they may be in a collective call inside of `step` that it does not come to. Collective over comm.
void agree(const Comm& comm, const std::function<void()>& step);

}  // namespace headspan
