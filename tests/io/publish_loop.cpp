// Publishes version after version of a file until it is killed, or once. Run by kill_publish.py. The file
// holds its version in an attribute and in every element.
//
// usage: publish_loop PATH FIRST_VERSION [once]
#include <cstdio>
#include <string>
#include <vector>

#include <unistd.h>

#include "io/hdf5/netcdf.h"
#include "io/outputs/publish.h"

namespace headspan {
namespace {

constexpr std::int64_t kRows = 512, kColumns = 256;

void write_version(const Comm& comm, const std::string& path, std::int64_t version) {
  NetcdfFile file = NetcdfFile::create(comm, path);
  file.define_dimension("row", kRows);
  file.define_dimension("column", kColumns);
  const std::int64_t share = kRows / comm.size(), first = share * comm.rank();
  const std::vector<std::int64_t> values(static_cast<std::size_t>(share * kColumns), version);
  file.write("values", {"row", "column"}, values.data(), first, share);
  file.set_attribute("/", "version", version);
  file.close();
}

void publish_version(const Comm& comm, const std::string& path, std::int64_t version) {
  const Publication publication{path, "job" + std::to_string(version), std::to_string(version)};
  publish(
      comm, publication, [&](const std::string& temporary) { write_version(comm, temporary, version); },
      [](const std::string&) {});
}

}  // namespace
}  // namespace headspan

int main(int argc, char** argv) {
  using namespace headspan;
  MpiSession session(&argc, &argv);
  if (argc < 3) return 2;
  const Comm comm = Comm::duplicate(MPI_COMM_WORLD);
  const bool once = argc > 3;
  std::printf("%d\n", getpid());
  std::fflush(stdout);
  for (std::int64_t version = std::stoll(argv[2]);; ++version) {
    publish_version(comm, argv[1], version);
    if (once) return 0;
  }
}
