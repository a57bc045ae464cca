#include "simulated_gpu/streams.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include "simulated_gpu/simulated_gpu.h"

namespace simulated {

using Clock = std::chrono::steady_clock;

struct Stream {
  struct Task {
    std::function<void()> run;
    Clock::time_point due;
  };
  std::deque<Task> tasks;
  std::int64_t put = 0, done = 0, wanted = 0;  // tasks, from the first on
};

namespace {

/// Never destroyed: threads of streams wait for them until the process ends.
struct Shared {
  std::mutex mutex;  // of all streams
  std::condition_variable changed;
};
Shared& shared = *new Shared;

using Lock = std::unique_lock<std::mutex>;

bool is_past_locked(const Mark& mark) { return mark.stream == nullptr || mark.stream->done >= mark.tasks; }

void work(Stream& stream) {
  Lock lock(shared.mutex);
  for (;;) {
    shared.changed.wait(lock, [&] { return !stream.tasks.empty(); });
    shared.changed.wait_until(lock, stream.tasks.front().due, [&] { return stream.wanted > stream.done; });
    const std::function<void()> run = std::move(stream.tasks.front().run);
    stream.tasks.pop_front();
    lock.unlock();
    run();
    lock.lock();
    ++stream.done;
    shared.changed.notify_all();
  }
}

}  // namespace

Stream& make_stream() {
  auto* const stream = new Stream;
  std::thread([stream] { work(*stream); }).detach();
  return *stream;
}

Stream& default_stream() {
  static Stream& stream = make_stream();
  return stream;
}

void put(Stream& stream, std::function<void()> task) {
  const bool late = &stream != &default_stream();
  {
    const Lock lock(shared.mutex);
    const std::chrono::milliseconds lateness(late ? number("SIMULATED_GPU_LATENESS_MS", 20) : 0);
    stream.tasks.push_back({std::move(task), Clock::now() + lateness});
    ++stream.put;
  }
  shared.changed.notify_all();
}

void put_wait(Stream& stream, const Mark& mark) {
  if (mark.stream != &stream && !is_past(mark)) put(stream, [mark] { wait_for(mark); });
}

Mark mark(Stream& stream) {
  const Lock lock(shared.mutex);
  return {&stream, stream.put};
}

bool is_past(const Mark& mark) {
  const Lock lock(shared.mutex);
  return is_past_locked(mark);
}

void wait_for(const Mark& mark) {
  Lock lock(shared.mutex);
  if (is_past_locked(mark)) return;
  mark.stream->wanted = std::max(mark.stream->wanted, mark.tasks);
  shared.changed.notify_all();
  shared.changed.wait(lock, [&] { return is_past_locked(mark); });
}

void wait_for(Stream& stream) { wait_for(mark(stream)); }

}  // namespace simulated
