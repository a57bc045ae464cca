// Log: what a run tells its operator, on stderr: one line per event, escaped (base/printable.h) and flushed,
// from one rank. A Log that does not speak (every rank but 0) swallows all. Not the progress of a phase
// (base/progress.h), not the end of a failed run.
#pragma once

#include <cstdio>
#include <string>
#include <utility>
#include <vector>

namespace headspan {

/// key and value of one fact, in the order they are told.
using LogFields = std::vector<std::pair<std::string, std::string>>;

/// "key=value key=value"; a value that is empty or holds blanks, quotes or '=' stands in double quotes.
std::string format_fields(const LogFields& fields);

class Log {
 public:
  /// `out` must outlive the Log.
  explicit Log(bool speaks, std::FILE* out = stderr);

  /// "2026-03-01T12:00:05Z headspan PHASE key=value ...".
  void event(const std::string& phase, const LogFields& fields = {}) const;

  /// "headspan: notice: TEXT": as asked, but perhaps not as expected.
  void notice(const std::string& text) const;

  /// "headspan: warning: TEXT": the result is not all that was asked for.
  void warning(const std::string& text) const;

  bool speaks() const { return speaks_; }
  bool on_terminal() const { return on_terminal_; }
  std::FILE* out() const { return out_; }

 private:
  void line(const std::string& text) const;

  bool speaks_;
  std::FILE* out_;
  bool on_terminal_;
};

}  // namespace headspan
