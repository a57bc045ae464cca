// Errors that headspan tells apart, because each ends the program differently (design: exit codes 0, 1, 2,
// 3).
//
//   InputError  exit 2   the input is at fault: a key, a file, a shape. Found before work begins, told once.
//   Error       exit 1   the environment failed: I/O, MPI, LAPACK, memory.
//   HS_ASSERT   abort    a defect of headspan itself.
//
// An exception is local to the rank that throws it. Before ranks go on to a collective call they agree on
// success with `agree` (dist/comm/agreement.h), so that no rank waits for one that failed.
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

/// The input is at fault (exit 2). `what()` is the one line told to the user, without the leading "headspan:
/// ".
class InputError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;

  /// "FILE: FIELD = VALUE: what is wrong; what would be right", control characters escaped
  /// (base/printable.h). Empty parts and their punctuation are left out.
  InputError(const std::string& file, const std::string& field, const std::string& value,
             const std::string& wrong, const std::string& right = {});
};

/// What to tell of an exception, in one line: what(), of those of other libraries its first line alone
/// (LibTorch's go on with a stack).
std::string error_message(const std::exception& exception);

/// `what: path: strerror(errno)` as an Error; call it right after the failing system call.
[[noreturn]] void throw_errno(const std::string& what, const std::string& path);

/// Prints the failed expression with its place and aborts the process.
[[noreturn]] void assertion_failed(const char* expression, const char* file, int line);

}  // namespace headspan

/// A condition that only a defect of headspan can break; checked in every build type.
#define HS_ASSERT(condition) \
  ((condition) ? static_cast<void>(0) : ::headspan::assertion_failed(#condition, __FILE__, __LINE__))
