#include "dist/large_array.h"

#include <new>

#include <sys/mman.h>

namespace headspan {

void* allocate_large(std::int64_t bytes) {
  constexpr std::size_t kHugePage = std::size_t{1} << 21;
  const auto wanted = static_cast<std::size_t>(bytes);
  const std::size_t alignment = wanted >= kHugePage ? kHugePage : 64;
  const std::size_t size = (wanted + alignment - 1) / alignment * alignment;
  void* memory = std::aligned_alloc(alignment, size);
  if (memory == nullptr) throw std::bad_alloc();
  if (alignment == kHugePage)
    madvise(memory, size, MADV_HUGEPAGE);  // advice: refusal costs time, not results
  return memory;
}

}  // namespace headspan
