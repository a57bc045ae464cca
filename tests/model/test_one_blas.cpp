// A program with LibTorch in it calls one BLAS: PyTorch's wheel brings some routines of another one, which
// would have its own threads and its own memory.
#include <string>

#include <dlfcn.h>
#include <gtest/gtest.h>

#include "model/core/torch_runtime.h"

namespace headspan {
namespace {

/// The shared library in which a call of this program ends.
std::string library_of(const char* routine) {
  Dl_info found{};
  void* address = ::dlsym(RTLD_DEFAULT, routine);
  return address != nullptr && ::dladdr(address, &found) != 0 ? found.dli_fname : "none";
}

TEST(OneBlas, RoutinesComeFromOneLibrary) {
  ASSERT_FALSE(torch_version().empty());
  const std::string library = library_of("dsyrk_");
  EXPECT_NE(library, "none");
  for (const char* routine : {"sgemm_", "dgemm_", "ssyrk_", "dtrsm_"})
    EXPECT_EQ(library_of(routine), library) << routine;
}

}  // namespace
}  // namespace headspan
