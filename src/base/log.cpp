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

Log::Log(bool speaks, std::FILE* out) : speaks_(speaks), out_(out), on_terminal_(isatty(fileno(out)) == 1) {}

void Log::event(const std::string& phase, const LogFields& fields) const {
  if (!speaks_) return;
  std::string text = iso_time_utc() + " headspan " + phase;
  for (const auto& [key, value] : fields) text += " " + key + "=" + quoted(value);
  line(text);
}

void Log::notice(const std::string& text) const { line("headspan: notice: " + text); }

void Log::warning(const std::string& text) const { line("headspan: warning: " + text); }

void Log::line(const std::string& text) const {
  if (!speaks_) return;
  const char* clear_bar = on_terminal_ ? "\r\x1b[K" : "";
  std::fprintf(out_, "%s%s\n", clear_bar, escaped(text).c_str());
  std::fflush(out_);
}

}  // namespace headspan
