#include "support/mpi_listener.h"

#include <cstdio>
#include <vector>

#include <mpi.h>

namespace headspan {
namespace {

int world_rank() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}

/// The texts of all ranks, in rank order, on rank 0.
std::vector<std::string> gather(const std::string& text) {
  int rank = 0, size = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (rank != 0) {
    MPI_Send(text.data(), static_cast<int>(text.size()), MPI_CHAR, 0, 0, MPI_COMM_WORLD);
    return {};
  }
  std::vector<std::string> texts{text};
  for (int r = 1; r < size; ++r) {
    MPI_Status status;
    MPI_Probe(r, 0, MPI_COMM_WORLD, &status);
    int count = 0;
    MPI_Get_count(&status, MPI_CHAR, &count);
    std::string& other = texts.emplace_back(static_cast<std::size_t>(count), '\0');
    MPI_Recv(other.data(), count, MPI_CHAR, r, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }
  return texts;
}

}  // namespace

void MpiListener::OnTestStart(const testing::TestInfo& info) {
  failures_.clear();
  skipped_.clear();
  if (world_rank() == 0) std::printf("[ RUN  ] %s.%s\n", info.test_suite_name(), info.name());
  std::fflush(stdout);
}

void MpiListener::OnTestPartResult(const testing::TestPartResult& result) {
  if (result.skipped()) skipped_ = std::string(": ") + result.message();
  if (!result.failed()) return;
  failures_ += std::string(result.file_name() ? result.file_name() : "?") + ":" +
               std::to_string(result.line_number()) + ": " + result.message() + "\n";
}

void MpiListener::OnTestEnd(const testing::TestInfo& info) {
  const auto texts = gather(failures_);
  bool failed = false;
  for (std::size_t r = 0; r < texts.size(); ++r) {
    if (texts[r].empty()) continue;
    failed = true;
    std::printf("[ RANK %zu ]\n%s", r, texts[r].c_str());
  }
  int everywhere = failed ? 1 : 0;
  MPI_Bcast(&everywhere, 1, MPI_INT, 0, MPI_COMM_WORLD);
  const std::string skipped = failed ? "" : skipped_;
  (everywhere != 0 ? failed_ : skipped.empty() ? passed_ : left_out_) += 1;
  const char* outcome = failed ? "FAIL" : skipped.empty() ? " ok " : "skip";
  if (world_rank() == 0)
    std::printf("[ %s ] %s.%s%s\n", outcome, info.test_suite_name(), info.name(), skipped.c_str());
  std::fflush(stdout);
}

void MpiListener::OnTestProgramEnd(const testing::UnitTest&) {
  if (world_rank() == 0) std::printf("%d passed, %d failed, %d skipped\n", passed_, failed_, left_out_);
}

}  // namespace headspan
