#include "dist/comm/agreement.h"

#include <exception>

namespace headspan {
namespace {

thread_local int agreed_errors = 0;  // that exist in this thread

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
    line = "rank " + std::to_string(world_rank()) + ": " + error_message(e);
  }
  const int first = comm.min(code == 0 ? comm.size() : comm.rank());
  if (first == comm.size()) return;
  line = comm.broadcast(line, first);
  comm.broadcast(&code, 1, first);
  throw AgreedError(line, code);
}

}  // namespace headspan
