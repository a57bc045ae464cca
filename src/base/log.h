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

/// How much a Log prints: quiet: warnings only; verbose: details as well.
enum class Verbosity { quiet, normal, verbose };

class Log {
 public:
  /// `out` must outlive the Log.
  explicit Log(bool speaks, std::FILE* out = stderr, Verbosity verbosity = Verbosity::normal);

  /// Prints "2026-03-01T12:00:05Z headspan PHASE key=value ...". A value that is empty or holds blanks,
  /// quotes or '=' is put in double quotes.
  void event(const std::string& phase, const LogFields& fields = {}) const;

  /// Prints an event if the Log is verbose.
  void detail(const std::string& phase, const LogFields& fields) const;

  /// Prints "headspan: notice: TEXT": the run does what was asked, but perhaps not what was expected.
  void notice(const std::string& text) const;

  /// Prints "headspan: warning: TEXT": the result will not be all that was asked for.
  void warning(const std::string& text) const;

  /// Prints "next: COMMAND": what a user may run now.
  void next(const std::string& command) const;

  bool speaks() const { return speaks_ && verbosity_ != Verbosity::quiet; }  ///< but for warnings
  bool is_verbose() const { return verbosity_ == Verbosity::verbose; }       ///< on all ranks
  bool on_terminal() const { return on_terminal_; }
  std::FILE* out() const { return out_; }

 private:
  void line(const std::string& text) const;

  bool speaks_;
  std::FILE* out_;
  bool on_terminal_;
  Verbosity verbosity_;
};

}  // namespace headspan
