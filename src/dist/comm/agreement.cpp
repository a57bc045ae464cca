#include "dist/comm/agreement.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <memory>

#include "base/clock.h"
#include "base/process/watchdog.h"

namespace headspan {
namespace {

constexpr double kPatience = 20;  // seconds

thread_local int agreed_errors = 0;  // that exist in this thread

thread_local double agreed_at = steady_seconds();
thread_local double longest_step = 0;  // seconds between two agreements

void end_step() {
  const double now = steady_seconds();
  longest_step = std::max(longest_step, now - agreed_at);
  agreed_at = now;
}

/// Ends the job if this rank, which has failed, waits in vain for the others, which may still be in a step.
std::unique_ptr<Watchdog> watch_agreement(const std::string& failure) {
  const double patience = std::max(kPatience, 3 * longest_step);
  return std::make_unique<Watchdog>(std::chrono::milliseconds(static_cast<std::int64_t>(1000 * patience)),
                                    [failure] { abort_job(failure); });
}

}  // namespace

AgreedError::AgreedError(const std::string& what, int exit_code)
    : std::runtime_error(what), exit_code_(exit_code) {
  ++agreed_errors;
}

AgreedError::AgreedError(const AgreedError& other) noexcept
    : std::runtime_error(other), exit_code_(other.exit_code_) {
  ++agreed_errors;
}

AgreedError::~AgreedError() { --agreed_errors; }

bool unwinds_alone() { return std::uncaught_exceptions() > 0 && agreed_errors == 0; }

void agree(const Comm& comm, const std::function<void()>& step) {
  int code = 0;
  std::string line;
  std::unique_ptr<Watchdog> watch;
  try {
    step();
  } catch (const AgreedError& e) {
    code = e.exit_code();
    line = e.what();
  } catch (const InputError& e) {
    code = 2;
    line = e.what();
  } catch (const std::exception& e) {
    code = 1;
    const std::string failure = error_message(e);
    line = "rank " + std::to_string(world_rank()) + ": " + failure;
    if (comm.size() > 1) watch = watch_agreement(failure);
  }
  const int first = comm.min(code == 0 ? comm.size() : comm.rank());
  end_step();
  if (first == comm.size()) return;
  line = comm.broadcast(line, first);
  comm.broadcast(&code, 1, first);
  throw AgreedError(line, code);
}

}  // namespace headspan
