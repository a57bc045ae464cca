// A stream to hand to what writes to stderr, a file or a terminal, and the text that has reached it so far.
// What is still in the stream's buffer has not reached it: so a missing flush shows.
#pragma once

#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>

#include <fcntl.h>
#include <poll.h>
#include <termios.h>
#include <unistd.h>

namespace headspan {

/// The lines of a log without what each starts with, "2026-03-01T12:00:05Z headspan "; "?" before a line that
/// does not.
inline std::string timeless(const std::string& text) {
  constexpr char pattern[] = "0000-00-00T00:00:00Z headspan ";
  constexpr std::size_t length = sizeof pattern - 1;
  std::string rest;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\n', begin);
    const std::string line = text.substr(begin, end - begin);
    bool fits = line.size() >= length && end != std::string::npos;
    for (std::size_t i = 0; fits && i < length; ++i)
      fits = pattern[i] == '0' ? line[i] >= '0' && line[i] <= '9' : line[i] == pattern[i];
    rest += fits ? line.substr(length) + "\n" : "?" + line + "\n";
    begin = end == std::string::npos ? text.size() : end + 1;
  }
  return rest;
}

class OutFile {
 public:
  OutFile() : file_(std::tmpfile()) {}
  ~OutFile() { std::fclose(file_); }
  OutFile(const OutFile&) = delete;
  OutFile& operator=(const OutFile&) = delete;

  std::FILE* get() const { return file_; }

  std::string text() const {
    std::string text(4096, '\0');
    const ssize_t bytes = pread(fileno(file_), text.data(), text.size(), 0);
    text.resize(bytes > 0 ? static_cast<std::size_t>(bytes) : 0);
    return text;
  }

 private:
  std::FILE* file_;
};

/// A pseudo-terminal, without the translation of newlines.
class OutTerminal {
 public:
  OutTerminal() : master_(posix_openpt(O_RDWR | O_NOCTTY)) {
    grantpt(master_);
    unlockpt(master_);
    file_ = std::fopen(ptsname(master_), "w");
    termios settings{};
    tcgetattr(fileno(file_), &settings);
    cfmakeraw(&settings);
    tcsetattr(fileno(file_), TCSANOW, &settings);
  }
  ~OutTerminal() {
    std::fclose(file_);
    close(master_);
  }
  OutTerminal(const OutTerminal&) = delete;
  OutTerminal& operator=(const OutTerminal&) = delete;

  std::FILE* get() const { return file_; }

  /// What was written since the last call.
  std::string text() const {
    std::string text;
    std::array<char, 512> part{};
    pollfd waiting{master_, POLLIN, 0};
    while (poll(&waiting, 1, 50) == 1) {
      const ssize_t bytes = read(master_, part.data(), part.size());
      if (bytes <= 0) break;
      text.append(part.data(), static_cast<std::size_t>(bytes));
    }
    return text;
  }

 private:
  int master_;
  std::FILE* file_;
};

}  // namespace headspan
