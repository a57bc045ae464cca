// Preloaded: after SIGRTMIN+1 the next allocation of C++ in the process throws std::bad_alloc, as if the
// memory were used up.
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <new>

namespace {

std::atomic<bool> fails{false};

void fail_next(int) { fails = true; }

__attribute__((constructor)) void listen() { std::signal(SIGRTMIN + 1, fail_next); }

}  // namespace

void* operator new(std::size_t size) {
  void* const memory = fails.exchange(false) ? nullptr : std::malloc(size > 0 ? size : 1);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

// (the C++ library's calls the one above; a sanitizer's does not)
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  return fails.exchange(false) ? nullptr : std::malloc(size > 0 ? size : 1);
}

void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
