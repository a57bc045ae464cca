// A watch over a file that several ranks write. When a write fails on one rank alone, HDF5 may go on there to
// another collective call than the others are in, and all wait forever: in H5Fclose that rank comes to
// MPI_File_close, which waits for the others. A rank that is still in the same step 15 s after such a write
// ends the job. Where HDF5 returns the error the ranks agree on it instead (dist/comm/agreement.h).
//
// HDF5's writes are seen because this file defines MPI_File_write_at and MPI_File_write_at_all, which call
// the next definition: that of a profiler, or MPI's.
#pragma once

#include <memory>
#include <string>

#include "base/process/watchdog.h"
#include "dist/comm/mpi.h"

namespace headspan {

class H5Watch {
 public:
  /// Lasts for a collective step on the file at `path`, which must outlive it, and which it removes before
  /// the job ends. Watches nothing if there is no `comm`. Of nested watches the inner one counts. Local.
  H5Watch(const Comm* comm, const std::string& path);
  ~H5Watch();
  H5Watch(const H5Watch&) = delete;
  H5Watch& operator=(const H5Watch&) = delete;

  /// Waits from now on, if it did not before; errno says why a write failed. Local.
  void meet_failure();

 private:
  const std::string& path_;
  H5Watch* outer_;
  std::unique_ptr<Watchdog> watchdog_;  // once a write has failed
};

}  // namespace headspan
