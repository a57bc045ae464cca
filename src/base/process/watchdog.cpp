#include "base/process/watchdog.h"

#include <utility>

namespace headspan {
namespace {

constexpr std::chrono::milliseconds kPeriod{100};

}  // namespace

Watchdog::Watchdog(std::chrono::milliseconds patience, std::function<Look()> look,
                   std::function<void(const std::string&)> give_up)
    : patience_(patience), look_(std::move(look)), give_up_(std::move(give_up)), thread_([this] { run(); }) {}

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
    const Look now = look_();
    if (!now.trouble.empty()) return give_up_(now.trouble);
    const bool moves = !now.running || now.finished != finished;
    waited = moves ? std::chrono::milliseconds{0} : waited + kPeriod;
    finished = now.finished;
    if (waited >= patience_)
      return give_up_("nothing has come for " +
                      std::to_string(std::chrono::duration_cast<std::chrono::seconds>(patience_).count()) +
                      " s: another rank hangs or has gone another way");
  }
}

}  // namespace headspan
