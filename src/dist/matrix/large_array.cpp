#include "dist/matrix/large_array.h"

#include <new>

#include <sys/mman.h>

namespace headspan {
namespace {

constexpr std::size_t kHugePage = std::size_t{1} << 21, kLine = 64;

}  // namespace

// Not aligned_alloc: glibc searches its free lists for size plus alignment, which no block freed earlier has,
// so the heap would grow with every array of the same size.
LargeMemory::LargeMemory(std::int64_t bytes) {
  const auto wanted = static_cast<std::size_t>(bytes);
  const std::size_t alignment = wanted >= kHugePage ? kHugePage : kLine;
  block_.reset(std::malloc(wanted + alignment));
  if (block_ == nullptr) throw std::bad_alloc();
  const auto address = reinterpret_cast<std::uintptr_t>(block_.get());
  begin_ = static_cast<char*>(block_.get()) + (alignment - address % alignment);
  if (alignment == kHugePage)
    madvise(begin_, wanted / kHugePage * kHugePage,
            MADV_HUGEPAGE);  // only a hint: if it fails, everything is slower
}

}  // namespace headspan
