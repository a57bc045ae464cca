#include <cerrno>
#include <cstdlib>

#include <gtest/gtest.h>
#include <sys/mman.h>

#include "dist/matrix/large_array.h"

namespace headspan {
namespace {

constexpr std::int64_t kHugePage = std::int64_t{1} << 21;

bool is_mapped(const void* page) {
  if (msync(const_cast<void*>(page), 1, MS_ASYNC) == 0) return true;
  EXPECT_EQ(errno, ENOMEM);
  return false;
}

TEST(LargeArray, AllOfItIsAlignedMemory) {
  for (const std::int64_t bytes : {std::int64_t{1}, kHugePage - 1, kHugePage, 3 * kHugePage + 5}) {
    LargeArray<char> array;
    array.reserve(bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(array.data()) % (bytes < kHugePage ? 64 : kHugePage), 0U);
    for (std::int64_t i = 0; i < bytes; ++i) array.data()[i] = 'x';
    array.reserve(bytes / 2);
    EXPECT_EQ(array.data()[bytes - 1], 'x');
  }
}

// glibc takes blocks as large as those from the heap once it has freed one of their size, and a heap does
// not become shorter where something lies above the freed block.
TEST(LargeArray, MemoryOfALargeOneGoesBackToTheSystem) {
  void* volatile freed = std::malloc(16 * kHugePage - 4096);
  std::free(freed);
  LargeArray<char> array;
  array.reserve(3 * kHugePage);
  void* volatile above = std::malloc(1000);
  const char* const page = array.data() + kHugePage;
  EXPECT_TRUE(is_mapped(page));

  array = {};
  EXPECT_FALSE(is_mapped(page));
  std::free(above);
}

}  // namespace
}  // namespace headspan
