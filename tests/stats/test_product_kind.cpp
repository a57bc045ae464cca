// The choice between kernels and libraries: it is kept for each precision, and what is kept is used.
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "base/process/cpu_dispatch.h"
#include "stats/gram/product_kind.h"
#include "support/temp_folder.h"

namespace headspan {
namespace {

class ProductKindTest : public ::testing::TestWithParam<Precision> {};

TEST_P(ProductKindTest, IsKeptAndUsed) {
  const TempFolder folder("product_kind");
  setenv("XDG_CACHE_HOME", folder.path("").c_str(), 1);
  const ProductKind measured = fastest_product(GetParam());
  const std::string own = GetParam() == Precision::split && has_vnni() ? "integers" : "kernel";
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path("headspan"))) {
    const std::string path = entry.path().string();
    if (path.find("/products-") == std::string::npos) continue;  // another choice on the way
    ++files;
    std::string word;
    std::ifstream(path) >> word;
    EXPECT_EQ(word, measured == ProductKind::library ? "library" : own);
    std::ofstream(path) << (measured == ProductKind::library ? own : "library");
  }
  EXPECT_EQ(files, 1);
  EXPECT_NE(fastest_product(GetParam()), measured);
  unsetenv("XDG_CACHE_HOME");
}

INSTANTIATE_TEST_SUITE_P(Precisions, ProductKindTest,
                         ::testing::Values(Precision::float64, Precision::float32, Precision::split,
                                           Precision::bfloat16));

}  // namespace
}  // namespace headspan
