// A job of two ranks that rank 0 aborts while the other sleeps. `thread`: from a thread that may not call
// MPI; `blocked`: with an MPI_Abort that never returns; `alone`: as the others wait in a collective call that
// it does not come to. It must end long before the sleeping rank wakes.
#include <chrono>
#include <cstdio>
#include <string>
#include <thread>

#include <unistd.h>

#include "base/error.h"
#include "dist/comm/agreement.h"
#include "dist/comm/mpi.h"

namespace {

bool blocked = false;
std::thread::id main_thread;

void tell_other_threads(const char* call) {
  if (std::this_thread::get_id() != main_thread) std::fprintf(stderr, "another thread calls %s\n", call);
}

}  // namespace

extern "C" int MPI_Comm_rank(MPI_Comm comm, int* rank) {
  tell_other_threads("MPI_Comm_rank");
  return PMPI_Comm_rank(comm, rank);
}

extern "C" int MPI_Abort(MPI_Comm comm, int code) {
  tell_other_threads("MPI_Abort");
  while (blocked) pause();
  return PMPI_Abort(comm, code);
}

int main(int argc, char** argv) {
  using namespace headspan;
  main_thread = std::this_thread::get_id();
  const MpiSession session(&argc, &argv);
  const Comm world = Comm::duplicate(MPI_COMM_WORLD);
  const std::string how = argc > 1 ? argv[1] : "";
  blocked = how == "blocked";
  if (how == "alone")
    agree(world, [&] {
      if (world.is_root()) throw Error("aborts: alone");
      Comm::duplicate(MPI_COMM_WORLD).barrier();
    });
  if (!world.is_root()) std::this_thread::sleep_for(std::chrono::minutes(5));
  const auto abort = [&] { abort_job("aborts: " + how); };
  if (how == "thread") std::thread(abort).join();
  abort();
}
