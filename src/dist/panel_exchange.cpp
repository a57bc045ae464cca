#include "dist/panel_exchange.h"

#include <algorithm>

#include "base/checked.h"

namespace headspan {

template <class T>
PanelExchange<T>::~PanelExchange() {
  int finalised = 0;
  MPI_Finalized(&finalised);
  if (finalised == 0) MPI_Waitall(static_cast<int>(requests_.size()), requests_.data(), MPI_STATUSES_IGNORE);
}

template <class T>
void PanelExchange<T>::post(const Matrix& shape, std::int64_t tokens) {
  HS_ASSERT(requests_.empty());
  current_ = 1 - current_;
  Slot& slot = slots_[current_];
  if (grid_->comm().size() == 1) {
    slot.rows.swap(packed_rows_);
    slot.tokens = tokens;
    return;
  }
  const auto counts = grid_->comm().all_gather(tokens);
  slot.tokens = 0;
  for (const std::int64_t count : counts) slot.tokens = checked_add(slot.tokens, count, "tokens of a panel");
  post_operand(counts, shape.rows(), true, packed_rows_, slot.rows);
  post_operand(counts, shape.columns(), false, packed_columns_, slot.columns);
}

template <class T>
void PanelExchange<T>::post_operand(const std::vector<std::int64_t>& counts, const BlockCyclic& axis,
                                    bool is_rows, const std::vector<T>& packed, std::vector<T>& received) {
  const Comm& comm = grid_->comm();
  const int me = comm.rank();
  const int tag = is_rows ? 0 : 1;
  const auto part_of = [&](int rank) { return is_rows ? rank / grid_->columns() : rank % grid_->columns(); };
  const std::int64_t mine = axis.local_size(part_of(me));
  std::int64_t total = 0;
  for (const std::int64_t count : counts) total += count;
  received.resize(static_cast<std::size_t>(checked_mul(mine, total, "a panel")));
  std::vector<std::int64_t> sent_from(static_cast<std::size_t>(axis.parts),
                                      0);  // where each part's columns start
  for (int part = 1; part < axis.parts; ++part)
    sent_from[static_cast<std::size_t>(part)] =
        sent_from[static_cast<std::size_t>(part - 1)] +
        axis.local_size(part - 1) * counts[static_cast<std::size_t>(me)];
  T* in = received.data();
  for (int rank = 0; rank < comm.size(); ++rank) {
    const std::int64_t incoming = mine * counts[static_cast<std::size_t>(rank)];
    const T* out = packed.data() + sent_from[static_cast<std::size_t>(part_of(rank))];
    const std::int64_t outgoing = axis.local_size(part_of(rank)) * counts[static_cast<std::size_t>(me)];
    if (rank == me) {
      std::copy_n(out, incoming, in);
    } else {
      if (incoming > 0)
        HS_MPI(
            MPI_Irecv(in, to_int(incoming), mpi_type<T>(), rank, tag, comm.get(), &requests_.emplace_back()));
      if (outgoing > 0)
        HS_MPI(MPI_Isend(out, to_int(outgoing), mpi_type<T>(), rank, tag, comm.get(),
                         &requests_.emplace_back()));
    }
    in += incoming;
  }
}

template <class T>
void PanelExchange<T>::progress() {
  int done = 0;
  if (!requests_.empty())
    HS_MPI(MPI_Testall(to_int(static_cast<std::int64_t>(requests_.size())), requests_.data(), &done,
                       MPI_STATUSES_IGNORE));
}

template <class T>
PanelOperands<T> PanelExchange<T>::finish() {
  HS_MPI(MPI_Waitall(to_int(static_cast<std::int64_t>(requests_.size())), requests_.data(),
                     MPI_STATUSES_IGNORE));
  requests_.clear();
  const Slot& slot = slots_[current_];
  const bool alone = grid_->comm().size() == 1;
  return {slot.rows.data(), alone ? slot.rows.data() : slot.columns.data(), slot.tokens};
}

template class PanelExchange<double>;
template class PanelExchange<float>;

}  // namespace headspan
