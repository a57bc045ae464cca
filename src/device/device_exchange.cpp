#include "device/device_exchange.h"

#include <numeric>

#include <ATen/ATen.h>

#include "base/checked.h"
#include "base/error.h"

namespace headspan {

DeviceExchange::DeviceExchange(const Grid& grid, const DeviceComm& comm, std::int64_t columns,
                               std::int64_t block, at::Device device)
    : grid_(&grid), comm_(&comm), device_(device) {
  HS_ASSERT(comm.size() == grid.comm().size() && comm.rank() == grid.comm().rank());
  if (comm.size() == 1) return;
  rows_ = axis({columns, block, grid.rows(), 0});
  columns_ = axis({columns, block, grid.columns(), 0});
}

DeviceExchange::Axis DeviceExchange::axis(const BlockCyclic& distribution) const {
  Axis result;
  for (int part = 0; part < distribution.parts; ++part) {
    std::vector<std::int64_t> columns(to_size(distribution.local_size(part)));
    for (std::size_t i = 0; i < columns.size(); ++i)
      columns[i] = distribution.global(part, static_cast<std::int64_t>(i));
    result.push_back(at::tensor(columns, at::kLong).to(device_));
  }
  return result;
}

DevicePanel DeviceExchange::start(const at::Tensor& values) const {
  DevicePanel panel;
  if (comm_->size() == 1) {
    panel.received = {values, values};
    return panel;
  }
  const std::vector<std::int64_t> counts = comm_->host().all_gather(values.size(0));
  panel.received.rows = start_axis(rows_, values, counts, true, panel);
  if (grid_->rows() > 1) panel.received.columns = start_axis(columns_, values, counts, false, panel);
  return panel;
}

DeviceOperands DeviceExchange::finish(const DevicePanel& panel) const {
  for (const DeviceComm::Request request : panel.requests) comm_->wait(request);
  if (comm_->size() == 1) return panel.received;
  const at::Tensor rows = panel.received.rows.to(device_);
  if (grid_->rows() > 1) return {rows, panel.received.columns.to(device_)};
  return {rows, rows.index_select(1, columns_[to_size(grid_->column())])};
}

at::Tensor DeviceExchange::start_axis(const Axis& axis, const at::Tensor& values,
                                      const std::vector<std::int64_t>& counts, bool by_row,
                                      DevicePanel& panel) const {
  const auto part_of = [&](int rank) {
    return to_size(by_row ? rank / grid_->columns() : rank % grid_->columns());
  };
  const at::Device memory = comm_->gpu() ? device_ : at::Device(at::kCPU);
  std::vector<at::Tensor> sent;  // by part
  for (const at::Tensor& columns : axis)
    sent.push_back(values.index_select(1, columns).to(memory).contiguous());
  const std::int64_t tokens = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  const std::int64_t width = axis[part_of(comm_->rank())].size(0);
  at::Tensor received = at::empty({tokens, width}, values.options().device(memory));
  const std::int64_t row_bytes = width * static_cast<std::int64_t>(values.element_size());
  std::vector<Bytes<const char>> from;
  std::vector<Bytes<char>> to;
  char* next = static_cast<char*>(received.data_ptr());
  for (int rank = 0; rank < comm_->size(); ++rank) {
    const at::Tensor& part = sent[part_of(rank)];
    from.push_back({static_cast<const char*>(part.data_ptr()), static_cast<std::int64_t>(part.nbytes())});
    to.push_back({next, counts[to_size(rank)] * row_bytes});
    next += counts[to_size(rank)] * row_bytes;
  }
  panel.requests.push_back(comm_->begin_exchange(from, to));
  panel.sent.insert(panel.sent.end(), sent.begin(), sent.end());
  return received;
}

}  // namespace headspan
