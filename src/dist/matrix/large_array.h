// Memory for very many numbers: not initialised, and in huge pages where it is large, which makes first
// touches and strided access cheap. Not a vector: it holds room, not elements.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>

namespace headspan {

/// One block, in 2 MiB pages where it is that large, aligned to 64 bytes at least.
class LargeMemory {
 public:
  LargeMemory() = default;
  /// Throws std::bad_alloc.
  explicit LargeMemory(std::int64_t bytes);

  void* begin() const { return begin_; }

 private:
  struct Free {
    void operator()(void* p) const { std::free(p); }
  };
  std::unique_ptr<void, Free> block_;
  void* begin_ = nullptr;
};

/// T is trivial.
template <class T>
class LargeArray {
 public:
  /// Makes room for `count` values. What was held is kept where it has that room, else lost. Throws
  /// std::bad_alloc.
  void reserve(std::int64_t count) {
    if (count <= room_) return;
    room_ = 0;
    memory_ = {};  // before the new block is asked for
    memory_ = LargeMemory(count * static_cast<std::int64_t>(sizeof(T)));
    room_ = count;
  }

  std::int64_t room() const { return room_; }
  T* data() { return static_cast<T*>(memory_.begin()); }
  const T* data() const { return static_cast<const T*>(memory_.begin()); }

 private:
  LargeMemory memory_;
  std::int64_t room_ = 0;
};

}  // namespace headspan
