// Writes a parallel file, in which the ranks meet a limit on the size of files. Run by failing_write.py.
//
// usage: failing_write PATH [blocked]    blocked: MPI_Abort does not return
#include <csignal>
#include <string>
#include <vector>

#include <sys/resource.h>
#include <unistd.h>

#include "io/hdf5/h5_file.h"

namespace {

bool blocked = false;

}  // namespace

extern "C" int MPI_Abort(MPI_Comm comm, int code) {
  while (blocked) pause();
  return PMPI_Abort(comm, code);
}

int main(int argc, char** argv) {
  using namespace headspan;
  MpiSession session(&argc, &argv);
  if (argc < 2) return 2;
  blocked = argc > 2 && std::string(argv[2]) == "blocked";
  const Comm comm = Comm::duplicate(MPI_COMM_WORLD);
  H5File file = H5File::create(comm, argv[1]);
  H5Dataset dataset = file.create_dataset<double>("values", {512 * comm.size(), 1024});

  std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{1 << 20, RLIM_INFINITY};
  ::setrlimit(RLIMIT_FSIZE, &small);
  const std::vector<double> values(512 * 1024, 1.0);
  dataset.write_rows(values.data(), 512 * comm.rank(), 512);
  file.close();
}
