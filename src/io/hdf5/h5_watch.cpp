#include "io/hdf5/h5_watch.h"

#include <chrono>

#include <dlfcn.h>
#include <unistd.h>

#include "io/hdf5/h5.h"

namespace headspan {
namespace {

constexpr std::chrono::seconds kPatience{15};  // less than that of agree, which knows no file

thread_local H5Watch* current = nullptr;

using Write = int(MPI_File, MPI_Offset, const void*, int, MPI_Datatype, MPI_Status*);

/// Calls `write`, MPI's or a profiler's, and tells the watch if not all was written, which Open MPI may call
/// a success.
int watched(Write* write, MPI_File file, MPI_Offset offset, const void* data, int count, MPI_Datatype type,
            MPI_Status* status) {
  MPI_Status own;
  if (status == MPI_STATUS_IGNORE) status = &own;
  const int code = write(file, offset, data, count, type, status);
  MPI_Count size = 0, written = 0;
  const bool is_known = code == MPI_SUCCESS && MPI_Type_size_x(type, &size) == MPI_SUCCESS &&
                        MPI_Get_elements_x(status, MPI_BYTE, &written) == MPI_SUCCESS;
  if (current != nullptr && !(is_known && written == size * count)) current->meet_failure();
  return code;
}

Write* next_of(const char* name) { return reinterpret_cast<Write*>(::dlsym(RTLD_NEXT, name)); }

}  // namespace

H5Watch::H5Watch(const Comm* comm, const std::string& path) : path_(path), outer_(current) {
  if (comm != nullptr) current = this;
}

H5Watch::~H5Watch() { current = outer_; }

void H5Watch::meet_failure() {
  if (watchdog_) return;
  std::string cause = storage_error();
  if (cause.empty()) cause = "MPI-IO could not write all";
  watchdog_ = std::make_unique<Watchdog>(kPatience, [path = path_, cause] {
    ::unlink(path.c_str());
    abort_job(path + ": " + cause);
  });
}

}  // namespace headspan

extern "C" {

int MPI_File_write_at(MPI_File file, MPI_Offset offset, const void* data, int count, MPI_Datatype type,
                      MPI_Status* status) {
  static headspan::Write* const next = headspan::next_of("MPI_File_write_at");
  return headspan::watched(next, file, offset, data, count, type, status);
}

int MPI_File_write_at_all(MPI_File file, MPI_Offset offset, const void* data, int count, MPI_Datatype type,
                          MPI_Status* status) {
  static headspan::Write* const next = headspan::next_of("MPI_File_write_at_all");
  return headspan::watched(next, file, offset, data, count, type, status);
}

}  // extern "C"
