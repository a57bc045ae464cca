#include "dist/comm/shared_counter.h"

#include <exception>

namespace headspan {

SharedCounter::SharedCounter(const Comm& comm, int group, int groups) : next_(group), step_(groups) {
  if (groups == 1) return;
  std::int64_t* value = nullptr;
  const MPI_Aint bytes = comm.is_root() ? sizeof(std::int64_t) : 0;
  const int code = MPI_Win_allocate(bytes, sizeof(std::int64_t), MPI_INFO_NULL, comm.get(), &value, &window_);
  if (comm.max(code == MPI_SUCCESS ? 0 : 1) != 0) {
    if (code == MPI_SUCCESS) MPI_Win_free(&window_);
    window_ = MPI_WIN_NULL;
    return;
  }
  HS_MPI(MPI_Win_lock_all(0, window_));
  if (comm.is_root()) *value = 0;
  HS_MPI(MPI_Win_sync(window_));
  comm.barrier();
}

SharedCounter::~SharedCounter() { HS_ASSERT(window_ == MPI_WIN_NULL || std::uncaught_exceptions() > 0); }

std::int64_t SharedCounter::next() {
  if (window_ == MPI_WIN_NULL) {
    next_ += step_;
    return next_ - step_;
  }
  const std::int64_t one = 1;
  std::int64_t before = 0;
  HS_MPI(MPI_Fetch_and_op(&one, &before, MPI_INT64_T, 0, 0, MPI_SUM, window_));
  HS_MPI(MPI_Win_flush(0, window_));
  return before;
}

void SharedCounter::close() {
  if (window_ == MPI_WIN_NULL) return;
  HS_MPI(MPI_Win_unlock_all(window_));
  HS_MPI(MPI_Win_free(&window_));
}

}  // namespace headspan
