// ZeroPages: zeroed memory for very many numbers, of which the system allocates a page (4 KiB) only when
// something is written there. For arrays that are mostly not written, such as a symmetric matrix of which one
// triangle is used. Returned to the system at the end. Not for arrays that are written throughout
// (large_array.h).
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
