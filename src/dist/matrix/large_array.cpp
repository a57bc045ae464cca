#include "dist/matrix/large_array.h"

#include <cstdlib>
#include <new>

#include <sys/mman.h>

namespace headspan {
namespace {

constexpr std::size_t kHugePage = std::size_t{1} << 21, kLine = 64;

}  // namespace

// Large blocks do not come from the heap: what is freed there may stay resident, in huge pages, so that the
// memory of a long run would depend on the order of all its allocations. Small ones do not come from
// aligned_alloc: glibc searches its free lists for size plus alignment, which no block freed earlier has, so
// the heap would grow with every array of the same size.
LargeMemory::LargeMemory(std::int64_t bytes) {
  const auto wanted = static_cast<std::size_t>(bytes);
  const bool is_large = wanted >= kHugePage;
  const std::size_t alignment = is_large ? kHugePage : kLine, whole = wanted + alignment;
  if (is_large) {
    void* const block = mmap(nullptr, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (block == MAP_FAILED) throw std::bad_alloc();
    block_ = {block, Free{whole}};
  } else {
    block_ = {std::malloc(whole), Free{0}};
    if (block_ == nullptr) throw std::bad_alloc();
  }
  const auto address = reinterpret_cast<std::uintptr_t>(block_.get());
  begin_ = static_cast<char*>(block_.get()) + (alignment - address % alignment);
  if (is_large)
    madvise(begin_, wanted / kHugePage * kHugePage,
            MADV_HUGEPAGE);  // only a hint: if it fails, everything is slower
}

void LargeMemory::Free::operator()(void* block) const {
  if (mapped == 0)
    std::free(block);
  else
    munmap(block, mapped);
}

}  // namespace headspan
