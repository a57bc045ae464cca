#include "base/log.h"

#include <unistd.h>

#include "base/printable.h"
#include "base/provenance.h"

namespace headspan {
namespace {

std::string quoted(const std::string& value) {
  if (!value.empty() && value.find_first_of(" \t\r\n\"=") == std::string::npos) return value;
  std::string text = "\"";
  for (const char c : value) {
    if (c == '"' || c == '\\') text += '\\';
    text += c;
  }
  return text + "\"";
}

}  // namespace

Log::Log(bool speaks, std::FILE* out, Verbosity verbosity)
    : speaks_(speaks), out_(out), on_terminal_(isatty(fileno(out)) == 1), verbosity_(verbosity) {}

void Log::event(const std::string& phase, const LogFields& fields) const {
  if (!speaks()) return;
  std::string text = iso_time_utc() + " headspan " + phase;
  for (const auto& [key, value] : fields) text += " " + key + "=" + quoted(value);
  line(text);
}

void Log::detail(const std::string& phase, const LogFields& fields) const {
  if (is_verbose()) event(phase, fields);
}

void Log::notice(const std::string& text) const {
  if (speaks()) line("headspan: notice: " + text);
}

void Log::next(const std::string& command) const {
  if (speaks()) line("next: " + command);
}

void Log::warning(const std::string& text) const {
  if (speaks_) line("headspan: warning: " + text);
}

void Log::line(const std::string& text) const {
  const char* clear_bar = on_terminal_ ? "\r\x1b[K" : "";
  std::fprintf(out_, "%s%s\n", clear_bar, escaped(text).c_str());
  std::fflush(out_);
}

}  // namespace headspan
