#include "dist/matrix/panel_exchange.h"

#include <algorithm>
#include <numeric>

#include "base/checked.h"

namespace headspan {
template <class T>
PanelExchange<T>::~PanelExchange() {
  int finalised = 0;
  MPI_Finalized(&finalised);
  if (finalised == 0) MPI_Waitall(static_cast<int>(requests_.size()), requests_.data(), MPI_STATUSES_IGNORE);
}

template <class T>
void PanelExchange<T>::start(const Matrix& shape, const T* z, std::int64_t tokens) {
  HS_ASSERT(requests_.empty());
  counts_ = grid_->comm().all_gather(tokens);
  block_ = shape.columns().block;
  if (single_rank()) {
    alone_ = z;
    rows_.width = {shape.rows().size};
    return;
  }
  current_ = 1 - current_;
  const std::int64_t row = shape.columns().size;
  open(rows_, shape.rows(), grid_->row());
  pack(z, row, tokens, rows_);
  if (!one_row()) {
    open(columns_, shape.columns(), grid_->column());
    pack(z, row, tokens, columns_);
  }
  post(rows_, 0);
  if (!one_row()) post(columns_, 1);
}

/// `row`: the values from token to token in z.
template <class T>
void PanelExchange<T>::pack(const T* z, std::int64_t row, std::int64_t tokens, const Operand& operand) {
#pragma omp parallel for schedule(static)
  for (std::int64_t token = 0; token < tokens; ++token)
    for (const Segment& segment : operand.segments)
      std::copy_n(z + token * row + segment.first, segment.count, segment.out + token * segment.stride);
}

template <class T>
void PanelExchange<T>::open(Operand& operand, const BlockCyclic& axis, int part) {
  const int me = grid_->comm().rank();
  const std::int64_t tokens = counts_[to_size(me)];
  const std::int64_t before = std::accumulate(counts_.begin(), counts_.begin() + me, std::int64_t{0});
  const std::int64_t total = std::accumulate(counts_.begin(), counts_.end(), std::int64_t{0});
  operand.width.clear();
  for (int p = 0; p < axis.parts; ++p) operand.width.push_back(panel_leading<T>(axis.local_size(p)));
  const std::int64_t mine = operand.width[to_size(part)];
  const std::int64_t others = std::accumulate(operand.width.begin(), operand.width.end(), -mine);
  operand.packed.reserve(checked_mul(others, tokens, "a panel"));
  operand.received[current_].reserve(checked_mul(mine, total, "a panel"));
  operand.start.clear();
  T* next = operand.packed.data();
  for (int p = 0; p < axis.parts; ++p) {
    operand.start.push_back(p == part ? operand.received[current_].data() + mine * before : next);
    if (p != part) next += operand.width[to_size(p)] * tokens;
  }
  operand.segments.clear();
  for (std::int64_t block = 0; block < axis.blocks(); ++block) {
    const std::int64_t first = block * axis.block;
    const std::int64_t count = axis.block_size(block);
    const int owner = axis.owner_of_block(block);
    T* const out = operand.start[to_size(owner)] + axis.local(first);
    Segment* const last = operand.segments.empty() ? nullptr : &operand.segments.back();
    if (last != nullptr && out == last->out + last->count)
      last->count += count;
    else
      operand.segments.push_back({first, count, out, operand.width[to_size(owner)]});
  }
}

template <class T>
void PanelExchange<T>::post(Operand& operand, int tag) {
  constexpr auto kBytes = static_cast<std::int64_t>(sizeof(T));
  const Comm& comm = grid_->comm();
  const auto part_of = [&](int rank) { return tag == 0 ? rank / grid_->columns() : rank % grid_->columns(); };
  const std::int64_t mine = operand.width[to_size(part_of(comm.rank()))];
  const std::int64_t tokens = counts_[to_size(comm.rank())];
  T* in = operand.received[current_].data();
  for (int rank = 0; rank < comm.size(); ++rank) {
    const std::int64_t incoming = mine * counts_[to_size(rank)];
    const std::int64_t outgoing = operand.width[to_size(part_of(rank))] * tokens;
    const T* out = operand.start[to_size(part_of(rank))];
    if (rank != comm.rank()) {
      comm.begin_receive({reinterpret_cast<char*>(in), incoming * kBytes}, rank, tag, requests_);
      comm.begin_send({reinterpret_cast<const char*>(out), outgoing * kBytes}, rank, tag, requests_);
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
  wait_all(requests_);
  PanelOperands<T> panel;
  panel.rows = single_rank() ? alone_ : rows_.received[current_].data();
  panel.leading_rows = rows_.width[to_size(grid_->row())];
  panel.tokens = std::accumulate(counts_.begin(), counts_.end(), std::int64_t{0});
  panel.block = panel.distance = block_;
  if (one_row()) {
    panel.columns = panel.rows + grid_->column() * panel.block;
    panel.leading_columns = panel.leading_rows;
    panel.distance *= grid_->columns();
  } else {
    panel.columns = columns_.received[current_].data();
    panel.leading_columns = columns_.width[to_size(grid_->column())];
  }
  return panel;
}

template class PanelExchange<double>;
template class PanelExchange<float>;

}  // namespace headspan
