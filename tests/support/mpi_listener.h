// A GoogleTest printer for several ranks: rank 0 prints one line per test, and every failure of every rank
// with its rank in front; a test fails on all ranks when it fails on one. Collective over MPI_COMM_WORLD at
// the end of each test.
#pragma once

#include <string>

#include <gtest/gtest.h>

namespace headspan {

class MpiListener : public testing::EmptyTestEventListener {
 public:
  void OnTestStart(const testing::TestInfo& info) override;
  void OnTestPartResult(const testing::TestPartResult& result) override;
  void OnTestEnd(const testing::TestInfo& info) override;
  void OnTestProgramEnd(const testing::UnitTest& unit) override;

  bool any_failed() const { return failed_ > 0; }

 private:
  std::string failures_;  // of this rank, in this test
  std::string skipped_;   // why it was skipped here; empty: it was not
  int passed_ = 0;
  int failed_ = 0;
  int left_out_ = 0;  // skipped
};

}  // namespace headspan
