#include "app/run/output_lock.h"

#include "app/run/run_clock.h"
#include "dist/comm/agreement.h"

namespace headspan {

std::unique_ptr<LockFile> take_lock(const std::string& path, const std::string& job_id, const Comm& comm,
                                    const Log& log) {
  std::unique_ptr<LockFile> lock;
  agree(comm, [&] {
    if (comm.is_root()) lock = LockFile::take(path, job_id, log);
  });
  if (comm.max(comm.is_root() && !lock ? 1 : 0) != 0) throw Stopped{false};
  return lock;
}

}  // namespace headspan
