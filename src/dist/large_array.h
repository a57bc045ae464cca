// Memory for very many numbers: not initialised, and in huge pages where it is large, which makes first
// touches and strided access cheap. Not a vector: it holds room, not elements.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>

namespace headspan {

/// `bytes` in 2 MiB pages where there are that many, aligned to 64 at least. Throws std::bad_alloc. To be
/// freed by std::free.
void* allocate_large(std::int64_t bytes);

/// T is trivial.
template <class T>
class LargeArray {
 public:
  /// Makes room for `count` values. What was held is kept where it has that room, else lost. Throws
  /// std::bad_alloc.
  void reserve(std::int64_t count) {
    if (count <= room_) return;
    room_ = 0;
    memory_.reset();
    memory_.reset(static_cast<T*>(allocate_large(count * static_cast<std::int64_t>(sizeof(T)))));
    room_ = count;
  }

  T* data() { return memory_.get(); }
  const T* data() const { return memory_.get(); }

 private:
  struct Free {
    void operator()(T* p) const { std::free(p); }
  };
  std::unique_ptr<T[], Free> memory_;
  std::int64_t room_ = 0;
};

}  // namespace headspan
