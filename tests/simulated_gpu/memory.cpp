#include <array>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

#include "simulated_gpu/simulated_gpu.h"

namespace simulated {
namespace {

constexpr int kMostGpus = 16;
constexpr std::size_t kAlignment = 512;  // as cudaMalloc has it
constexpr int kArbitrary = 0xc7;         // of which floating-point numbers are large and finite
constexpr int kGivenBack = 0xff;         // of which they are none

struct Block {
  int gpu;
  std::size_t bytes;
};

std::mutex mutex;
std::map<void*, Block> blocks;                 // by address
std::array<std::size_t, kMostGpus> used = {};  // bytes
thread_local int current = 0;

}  // namespace

std::size_t number(const char* name, std::size_t otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

int gpu_count() { return static_cast<int>(number("SIMULATED_GPUS", 1)); }

int current_gpu() { return current; }

bool set_current_gpu(int gpu) {
  if (gpu < 0 || gpu >= gpu_count() || gpu >= kMostGpus) return false;
  current = gpu;
  return true;
}

std::size_t total_bytes() { return number("SIMULATED_GPU_BYTES", std::size_t{8} << 30); }

std::size_t free_bytes() {
  const std::lock_guard<std::mutex> lock(mutex);
  return total_bytes() - used[static_cast<std::size_t>(current)];
}

void* allocate(std::size_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex);
  std::size_t& taken = used[static_cast<std::size_t>(current)];
  if (bytes > total_bytes() - taken) return nullptr;
  const std::size_t whole = (bytes / kAlignment + 1) * kAlignment;
  void* const memory = std::aligned_alloc(kAlignment, whole);
  if (memory == nullptr) return nullptr;
  std::memset(memory, kArbitrary, whole);
  taken += bytes;
  blocks[memory] = {current, bytes};
  return to_device(memory);
}

void release(void* address) {
  if (address == nullptr) return;
  const std::lock_guard<std::mutex> lock(mutex);
  const auto block = blocks.find(to_host(address));
  if (block == blocks.end()) std::abort();
  used[static_cast<std::size_t>(block->second.gpu)] -= block->second.bytes;
  std::memset(block->first, kGivenBack, block->second.bytes);
  std::free(block->first);
  blocks.erase(block);
}

}  // namespace simulated
