#include "base/process/watchdog.h"

#include <utility>

namespace headspan {
namespace {

constexpr std::chrono::milliseconds kPeriod{100};

}  // namespace

Watchdog::Watchdog(std::chrono::milliseconds timeout, std::function<Status()> poll,
                   std::function<void(const std::string&)> on_failure)
    : timeout_(timeout),
      poll_(std::move(poll)),
      on_failure_(std::move(on_failure)),
      thread_([this] { run(); }) {}

Watchdog::Watchdog(std::chrono::milliseconds timeout, const std::function<void()>& on_timeout)
    : Watchdog(
          timeout,
          [] {
            return Status{0, true, ""};
          },
          [on_timeout](const std::string&) { on_timeout(); }) {}

Watchdog::~Watchdog() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    end_ = true;
  }
  ended_.notify_one();
  thread_.join();
}

void Watchdog::run() {
  std::int64_t finished = 0;
  std::chrono::milliseconds waited{0};
  for (;;) {
    {
      std::unique_lock<std::mutex> lock(mutex_);
      if (ended_.wait_for(lock, kPeriod, [this] { return end_; })) return;
    }
    const Status now = poll_();
    if (!now.error.empty()) return on_failure_(now.error);
    const bool moves = !now.running || now.finished != finished;
    waited = moves ? std::chrono::milliseconds{0} : waited + kPeriod;
    finished = now.finished;
    if (waited >= timeout_)
      return on_failure_("nothing has come for " +
                         std::to_string(std::chrono::duration_cast<std::chrono::seconds>(timeout_).count()) +
                         " s: another rank hangs or has gone another way");
  }
}

}  // namespace headspan
