// The main function of every test program: MPI for the whole process, one printer for all ranks.
#include <cstdio>

#include <gtest/gtest.h>

#include "dist/comm/mpi.h"
#include "support/mpi_listener.h"

int main(int argc, char** argv) {
  headspan::MpiSession session(&argc, &argv);
  testing::InitGoogleTest(&argc, argv);
  auto& listeners = testing::UnitTest::GetInstance()->listeners();
  delete listeners.Release(listeners.default_result_printer());
  auto* listener = new headspan::MpiListener;  // owned by GoogleTest from here on
  listeners.Append(listener);
  const int local = RUN_ALL_TESTS();
  if (testing::UnitTest::GetInstance()->test_to_run_count() == 0) {
    std::fprintf(stderr, "no test was run\n");
    return 1;
  }
  return local != 0 || listener->any_failed() ? 1 : 0;
}
