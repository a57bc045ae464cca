// Memory for very many numbers that are all zero, of which the system takes a page (4 KiB) when something is
// written there: for arrays of which much is never written, as one triangle of a symmetric matrix. Given back
// to the system at the end. Not for what is written throughout (large_array.h).
#pragma once

#include <cstdint>
#include <memory>

namespace headspan {

class ZeroPages {
 public:
  /// Aligned to a page. Throws std::bad_alloc.
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
