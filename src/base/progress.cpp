#include "base/progress.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <utility>

#include <sys/ioctl.h>

namespace headspan {
namespace {

constexpr double kBarSeconds = 0.1;
constexpr double kLineSeconds = 30;
constexpr std::size_t kBarWidth = 24;  // characters; fewer if the numbers need the space

std::string short_number(double value) {
  std::array<char, 40> text{};
  std::snprintf(text.data(), text.size(), "%.3g", value);
  return text.data();
}

std::size_t terminal_columns(std::FILE* out) {
  winsize size{};
  if (ioctl(fileno(out), TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col;
}

}  // namespace

Progress::Progress(const Log& log, std::string phase, std::string unit, std::int64_t total, LogFields context,
                   Clock clock)
    : log_(log),
      phase_(std::move(phase)),
      unit_(std::move(unit)),
      total_(total),
      context_(std::move(context)),
      clock_(std::move(clock)),
      start_(clock_()),
      now_(start_),
      shown_(start_) {
  if (log_.speaks() && log_.on_terminal()) draw_bar();
}

Progress::~Progress() { finish(); }

void Progress::advance(std::int64_t amount) {
  done_ += amount;
  if (finished_ || !log_.speaks()) return;
  now_ = clock_();
  if (now_ - shown_ >= (log_.on_terminal() ? kBarSeconds : kLineSeconds)) show();
}

void Progress::finish() {
  if (finished_) return;
  finished_ = true;
  if (!log_.speaks()) return;
  now_ = clock_();
  if (!log_.on_terminal()) return write_line();
  std::fputs("\r\x1b[K", log_.out());
  std::fflush(log_.out());
}

void Progress::show() {
  shown_ = now_;
  if (log_.on_terminal())
    draw_bar();
  else if (done_ < total_)  // finish() writes the last line
    write_line();
}

double Progress::rate() const { return now_ > start_ ? static_cast<double>(done_) / (now_ - start_) : 0; }

std::string Progress::eta() const {
  if (done_ >= total_) return clock_text(0);
  return rate() > 0 ? clock_text(static_cast<double>(total_ - done_) / rate()) : "unknown";
}

void Progress::draw_bar() const {
  const std::size_t columns = terminal_columns(log_.out()) - 1;
  const std::size_t frame = phase_.size() + std::string_view(" []").size();
  std::string numbers;
  for (const std::string& field : {" " + std::to_string(done_) + "/" + std::to_string(total_), " " + unit_,
                                   ", " + short_number(rate()) + "/s", ", eta " + eta()}) {
    if (frame + numbers.size() + field.size() > columns) break;
    numbers += field;
  }
  const std::size_t taken = std::min(columns, frame + numbers.size());
  const auto width = static_cast<std::int64_t>(std::min(kBarWidth, columns - taken));
  const std::int64_t filled = total_ > 0 ? std::min(done_, total_) * width / total_ : width;
  std::string text = phase_ + " [" + std::string(static_cast<std::size_t>(filled), '#') +
                     std::string(static_cast<std::size_t>(width - filled), '.') + "]" + numbers;
  if (frame > columns) text = phase_.size() > columns ? "" : phase_;
  std::fprintf(log_.out(), "\r\x1b[K%s", text.c_str());
  std::fflush(log_.out());
}

void Progress::write_line() const {
  LogFields fields = context_;
  fields.emplace_back(unit_, std::to_string(done_) + "/" + std::to_string(total_));
  fields.emplace_back("rate", short_number(rate()) + "/s");
  fields.emplace_back("eta", eta());
  fields.emplace_back("elapsed", clock_text(now_ - start_));
  log_.event(phase_, fields);
}

}  // namespace headspan
