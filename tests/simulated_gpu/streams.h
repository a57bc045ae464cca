// Streams of a simulated GPU. What is put on the default stream is done right away, unless something is
// before it that takes its time; LibTorch's operators are done when they return. What is put on another
// stream is done by a thread of its own as late as may be: when somebody waits for it, or after some
// milliseconds. So who uses a value without waiting for it finds another one, and who gives back or
// overwrites a buffer too early spoils what is still to be done. One default stream, for all GPUs of a
// process.
//
// SIMULATED_GPU_LATENESS_MS: the milliseconds, else 20.
#pragma once

#include <cstdint>
#include <functional>

namespace simulated {

struct Stream;

/// All that was put on a stream until now; of no stream: nothing.
struct Mark {
  Stream* stream = nullptr;
  std::int64_t tasks = 0;
};

Stream& default_stream();
/// Lives as long as the process.
Stream& make_stream();

void put(Stream& stream, std::function<void()> task);
/// What is put on the stream later comes behind the mark.
void put_wait(Stream& stream, const Mark& mark);

Mark mark(Stream& stream);
bool is_past(const Mark& mark);
/// Hurries the stream.
void wait_for(const Mark& mark);
/// For all that was put there.
void wait_for(Stream& stream);

}  // namespace simulated
