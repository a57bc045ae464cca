// Log: messages of a run to its operator on stderr, one line per event, escaped (base/printable.h) and
// flushed. Only rank 0 has a Log that speaks; the others discard everything. Not the progress of a phase
// (base/progress.h), not the error line of a failed run.
#pragma once

#include <cstdio>
#include <string>
#include <utility>
#include <vector>

namespace headspan {

/// Keys and values of one line, in the order in which they are printed.
using LogFields = std::vector<std::pair<std::string, std::string>>;

class Log {
 public:
  /// `out` must outlive the Log.
  explicit Log(bool speaks, std::FILE* out = stderr);

  /// Prints "2026-03-01T12:00:05Z headspan PHASE key=value ...". A value that is empty or holds blanks,
  /// quotes or '=' is put in double quotes.
  void event(const std::string& phase, const LogFields& fields = {}) const;

  /// Prints "headspan: notice: TEXT": the run does what was asked, but perhaps not what was expected.
  void notice(const std::string& text) const;

  /// Prints "headspan: warning: TEXT": the result will not be all that was asked for.
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
