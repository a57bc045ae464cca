#include "base/error.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

#include "base/printable.h"

namespace headspan {
namespace {

std::string input_line(const std::string& file, const std::string& field, const std::string& value,
                       const std::string& wrong, const std::string& right) {
  std::string line;
  if (!file.empty()) line += file + ": ";
  if (!field.empty()) line += value.empty() ? field + ": " : field + " = " + value + ": ";
  line += wrong;
  if (!right.empty()) line += "; " + right;
  return escaped(line);
}

}  // namespace

InputError::InputError(const std::string& file, const std::string& field, const std::string& value,
                       const std::string& wrong, const std::string& right)
    : std::runtime_error(input_line(file, field, value, wrong, right)) {}

std::string error_message(const std::exception& exception) {
  if (dynamic_cast<const std::bad_alloc*>(&exception) != nullptr) return "out of memory";
  const std::string what = exception.what();
  const bool ours = dynamic_cast<const Error*>(&exception) != nullptr ||
                    dynamic_cast<const InputError*>(&exception) != nullptr;
  return escaped(ours ? what : what.substr(0, what.find('\n')));
}

void throw_errno(const std::string& what, const std::string& path) {
  const int code = errno;
  throw Error(what + ": " + path + ": " + std::strerror(code));
}

void assertion_failed(const char* expression, const char* file, int line) {
  std::fprintf(stderr, "headspan: defect: %s is false (%s:%d)\n", expression, file, line);
  std::abort();
}

}  // namespace headspan
