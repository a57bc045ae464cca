// LargeArray: uninitialised memory for very many numbers. Large arrays are in huge pages, which makes first
// touches and strided access cheap, and go back to the system when they are freed. Not a vector: it has a
// capacity, not elements.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace headspan {

/// One block of memory, aligned to 64 bytes at least, and in pages of 2 MiB if it is that large.
class LargeMemory {
 public:
  LargeMemory() = default;
  /// Allocates `bytes` bytes. Throws std::bad_alloc.
  explicit LargeMemory(std::int64_t bytes);

  void* begin() const { return begin_; }

 private:
  struct Free {
    std::size_t mapped;  // bytes; 0 for a block of the heap
    void operator()(void* block) const;
  };
  std::unique_ptr<void, Free> block_{nullptr, Free{0}};
  void* begin_ = nullptr;
};

/// T is trivial.
template <class T>
class LargeArray {
 public:
  /// Makes room for `count` values. Keeps the values if there is room already, otherwise loses them. Throws
  /// std::bad_alloc.
  void reserve(std::int64_t count) {
    if (count <= capacity_) return;
    capacity_ = 0;
    memory_ = {};  // frees the old block before the new one is allocated
    memory_ = LargeMemory(count * static_cast<std::int64_t>(sizeof(T)));
    capacity_ = count;
  }

  std::int64_t capacity() const { return capacity_; }
  T* data() { return static_cast<T*>(memory_.begin()); }
  const T* data() const { return static_cast<const T*>(memory_.begin()); }

 private:
  LargeMemory memory_;
  std::int64_t capacity_ = 0;
};

}  // namespace headspan
