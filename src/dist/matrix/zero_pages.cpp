#include "dist/matrix/zero_pages.h"

#include <new>

#include <sys/mman.h>

namespace headspan {

ZeroPages::ZeroPages(std::int64_t bytes) : block_(nullptr, {static_cast<std::size_t>(bytes)}) {
  void* const block = mmap(nullptr, static_cast<std::size_t>(bytes), PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (block == MAP_FAILED) throw std::bad_alloc();
  block_.reset(block);
  madvise(block, static_cast<std::size_t>(bytes),
          MADV_NOHUGEPAGE);  // only a hint: if it fails, memory use is higher
}

void ZeroPages::Unmap::operator()(void* block) const { munmap(block, bytes); }

}  // namespace headspan
