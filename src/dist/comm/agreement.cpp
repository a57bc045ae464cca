#include "dist/comm/agreement.h"

#include <exception>
#include <memory>

#include "base/process/watchdog.h"

namespace headspan {
namespace {

constexpr std::chrono::seconds kPatience{20};

thread_local int agreed_errors = 0;  // that exist in this thread

/// Ends the job once this rank, which has failed, has waited for the others for kPatience.
std::unique_ptr<Watchdog> watch_agreement(const std::string& failure) {
  return std::make_unique<Watchdog>(
      kPatience,
      [] {
        return Watchdog::Status{0, true, ""};
      },
      [failure](const std::string&) { abort_job(failure); });
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
  if (first == comm.size()) return;
  line = comm.broadcast(line, first);
  comm.broadcast(&code, 1, first);
  throw AgreedError(line, code);
}

}  // namespace headspan
