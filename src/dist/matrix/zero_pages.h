// ZeroPages: zeroed memory for very many numbers. The system allocates a page (4 KiB) of it only when
// something is written there. For arrays of which large parts are never written, such as a symmetric matrix
// that uses one triangle. The memory goes back to the system when the object is destroyed. For arrays that
// are written throughout use large_array.h.
#pragma once

#include <cstdint>
#include <memory>

namespace headspan {

class ZeroPages {
 public:
  /// Reserves `bytes` bytes, aligned to a page. Throws std::bad_alloc.
  explicit ZeroPages(std::int64_t bytes);

  void* data() { return block_.get(); }
  const void* data() const { return block_.get(); }

 private:
  struct Unmap {
    std::size_t bytes;
    void operator()(void* block) const;
  };
  std::unique_ptr<void, Unmap> block_;
};

}  // namespace headspan
