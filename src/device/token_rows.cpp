#include "device/token_rows.h"

#include <ATen/ATen.h>

#include "base/range.h"
#include "dist/matrix/block_cyclic.h"

namespace headspan {
namespace {

/// Sends to each rank this rank's heads of its tokens. heads: [tokens of all ranks, columns of this rank],
/// out: [tokens of this rank, columns of all ranks].
void exchange_heads(const DeviceComm& comm, const at::Tensor& heads, const at::Tensor& out) {
  const at::Tensor send = heads.to(comm.gpu() ? out.device() : at::Device(at::kCPU)).contiguous();
  const std::int64_t tokens = out.size(0), width = heads.size(1);
  const at::Tensor received = at::empty({comm.size(), tokens, width}, send.options());
  const std::int64_t row_bytes = width * static_cast<std::int64_t>(send.element_size());
  const char* const sent = static_cast<const char*>(send.data_ptr());
  char* const into = static_cast<char*>(received.data_ptr());
  std::vector<Bytes<const char>> from;
  std::vector<Bytes<char>> to;
  for (int rank = 0; rank < comm.size(); ++rank) {
    const Range rows = range_of(send.size(0), comm.size(), rank);
    from.push_back({sent + rows.first * row_bytes, rows.count * row_bytes});
    to.push_back({into + rank * tokens * row_bytes, tokens * row_bytes});
  }
  comm.exchange(from, to);
  out.view({tokens, comm.size(), width}).copy_(received.permute({1, 0, 2}));
}

}  // namespace

at::Tensor row_numbers(const std::vector<std::int64_t>& rows, at::Device device) {
  return at::tensor(rows, at::kLong).to(device);
}

void copy_tokens(const DeviceComm& comm, const at::Tensor& values, const at::Tensor& kept,
                 std::int64_t first_column, const at::Tensor& rows) {
  const at::Tensor heads = values.flatten(1).index_select(0, kept);
  const at::Tensor out = rows.narrow(1, first_column, heads.size(1) * comm.size());
  if (comm.size() == 1)
    out.copy_(heads);
  else
    exchange_heads(comm, heads, out);
}

template <class T>
void on_host(const at::Tensor& values, const std::function<void(const T*)>& use) {
  const at::Tensor host = values.to(at::kCPU).to(at::CppTypeToScalarType<T>::value).contiguous();
  use(host.data_ptr<T>());
}

template void on_host(const at::Tensor&, const std::function<void(const double*)>&);
template void on_host(const at::Tensor&, const std::function<void(const float*)>&);

}  // namespace headspan
