// The three kinds of error, each of which ends the program differently:
//
//   InputError  exit 2   the input is at fault: a key, a file, a shape; found before work begins
//
//   Error       exit 1   the environment failed: I/O, MPI, LAPACK, memory
//
//   HS_ASSERT   abort    a defect of headspan itself
//
// An exception is local to the rank that throws it. Before a collective call the ranks agree on success with
// `agree` (dist/comm/agreement.h), so that no rank waits for one that failed.
#pragma once

#include <stdexcept>
#include <string>

namespace headspan {

/// The environment failed (exit 1). `what()` names the object and the reason, with errno's text where there
/// is one.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The input is at fault (exit 2). `what()` is the line that the user sees after "headspan: ".
class InputError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;

  /// "FILE: FIELD = VALUE: what is wrong; what would be right", control characters escaped
  /// (base/printable.h). Empty parts and their punctuation are left out.
  InputError(const std::string& file, const std::string& field, const std::string& value,
             const std::string& wrong, const std::string& right = {});
};

/// Returns one line that describes the exception: what(), or its first line if another library threw it
/// (LibTorch appends a stack trace).
std::string error_message(const std::exception& exception);

/// Throws Error("what: path: strerror(errno)"). Call it right after the system call that failed.
[[noreturn]] void throw_errno(const std::string& what, const std::string& path);

/// Prints the failed expression with its file and line, and aborts the process.
[[noreturn]] void assertion_failed(const char* expression, const char* file, int line);

}  // namespace headspan

/// Checks a condition that only a defect of headspan can break, in every build type.
#define HS_ASSERT(condition) \
  ((condition) ? static_cast<void>(0) : ::headspan::assertion_failed(#condition, __FILE__, __LINE__))
