#include "dist/comm/lost_rank_watch.h"

#include <chrono>
#include <cmath>
#include <random>
#include <thread>

#include "base/clock.h"
#include "base/process/heartbeat.h"
#include "base/process/watchdog.h"

namespace headspan {
namespace {

constexpr double kBeatSeconds = 0.5;
constexpr double kGreetSeconds = 1;
constexpr int kLastBeats = 3;  // packets may be lost

std::int64_t random_key(const Comm& world) {
  std::random_device source;
  auto key = static_cast<std::int64_t>((static_cast<std::uint64_t>(source()) << 32) | source());
  world.broadcast(&key, 1, 0);
  return key;
}

/// Returns "60" or "2.5".
std::string seconds_text(double seconds) {
  std::string text = std::to_string(seconds);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text;
}

}  // namespace

/// The beats of this rank, and the thread that sends and hears them.
struct LostRankWatch::Ring {
  Heartbeat heartbeat;
  HeartbeatAddress right;
  Watchdog::Status heard;  // of the left neighbour
  double sent = 0;
  std::unique_ptr<Watchdog> thread;

  explicit Ring(std::int64_t key) : heartbeat(static_cast<std::uint64_t>(key)) {}

  /// Sends the first beats, and waits for those of the left neighbour; not for long, as the network may
  /// refuse them.
  void greet() {
    const double start = steady_seconds();
    while (!poll().running && steady_seconds() - start < kGreetSeconds)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

  /// Tells the neighbour that there will be no more beats.
  void leave() const {
    for (int i = 0; i < kLastBeats; ++i) heartbeat.send(right, true);
  }

  Watchdog::Status poll() {
    const double now = steady_seconds();
    if (now - sent >= kBeatSeconds) {
      heartbeat.send(right);
      sent = now;
    }
    const Heartbeat::Heard come = heartbeat.hear();
    heard.finished += come.beats;
    if (come.beats > 0) heard.running = !come.last;
    return heard;
  }
};

LostRankWatch::LostRankWatch(const Comm& world, double seconds) {
  if (world.size() == 1 || seconds == 0) return;
  ring_ = std::make_unique<Ring>(random_key(world));
  std::vector<HeartbeatAddress> all(static_cast<std::size_t>(world.size()));
  world.all_gather(&ring_->heartbeat.address(), 1, all.data());
  const int left = (world.rank() + world.size() - 1) % world.size();
  ring_->right = all[static_cast<std::size_t>((world.rank() + 1) % world.size())];
  const std::string lost = "rank " + std::to_string(left) + " on " +
                           all[static_cast<std::size_t>(left)].host.data() +
                           " has given no sign of life for " + seconds_text(seconds) +
                           " s (run.heartbeat_seconds): it is stopped, or its node or the network has failed";
  ring_->greet();
  ring_->thread = std::make_unique<Watchdog>(
      std::chrono::milliseconds(std::llround(1000 * seconds)), [ring = ring_.get()] { return ring->poll(); },
      [ring = ring_.get(), lost](const std::string&) {
        ring->leave();  // this rank ends: the next one shall not miss it too
        abort_job(lost);
      });
}

LostRankWatch::~LostRankWatch() {
  if (!ring_) return;
  ring_->thread.reset();
  ring_->leave();
}

}  // namespace headspan
