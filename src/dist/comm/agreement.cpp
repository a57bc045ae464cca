#include "dist/comm/agreement.h"

#include <new>

namespace headspan {
namespace {

/// What a user and a batch system call this rank, whatever its number in a group.
int rank_of_world() {
  int rank = 0;
  HS_MPI(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
  return rank;
}

}  // namespace

void agree(const Comm& comm, const std::function<void()>& step) {
  int code = 0;
  std::string line;
  try {
    step();
  } catch (const AgreedError& e) {
    code = e.exit_code();
    line = e.what();
  } catch (const InputError& e) {
    code = 2;
    line = e.what();
  } catch (const std::bad_alloc&) {
    code = 1;
    line = "rank " + std::to_string(rank_of_world()) + ": out of memory";
  } catch (const std::exception& e) {
    code = 1;
    line = "rank " + std::to_string(rank_of_world()) + ": " + error_message(e);
  }
  const int first = comm.min(code == 0 ? comm.size() : comm.rank());
  if (first == comm.size()) return;
  line = comm.broadcast(line, first);
  comm.broadcast(&code, 1, first);
  throw AgreedError(line, code);
}

}  // namespace headspan
