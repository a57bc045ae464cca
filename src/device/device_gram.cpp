#include "device/device_gram.h"

#include <algorithm>

#include <ATen/ATen.h>

#include "base/error.h"
#include "device/device_values.h"

namespace headspan {
namespace {

constexpr std::int64_t kProductValues = std::int64_t{1} << 26;  // of a stripe in FP32
constexpr std::int64_t kNarrowest = 256, kWidest = 2048;

/// The first local row on or below the tile of the diagonal that a local column goes through.
std::int64_t first_row_of(const Grid& grid, const BlockCyclic& axis_of_rows,
                          const BlockCyclic& axis_of_columns, std::int64_t column) {
  const std::int64_t block = axis_of_columns.global(grid.column(), column) / axis_of_columns.block;
  const std::int64_t row = axis_of_rows.first_local_block_from(grid.row(), block) * axis_of_rows.block;
  return std::min(row, axis_of_rows.local_size(grid.row()));
}

}  // namespace

std::int64_t stripe_width(std::int64_t local_rows, std::int64_t local_columns) {
  const std::int64_t most = kProductValues / std::max<std::int64_t>(1, local_rows);
  return std::clamp(std::min(most, local_columns / 16), kNarrowest, kWidest);
}

DeviceGram::DeviceGram(const Grid& grid, std::int64_t columns, std::int64_t block, at::Device device,
                       std::int64_t width)
    : device_(device) {
  const BlockCyclic rows{columns, block, grid.rows(), 0}, cols{columns, block, grid.columns(), 0};
  const std::int64_t local_rows = rows.local_size(grid.row()), local_columns = cols.local_size(grid.column());
  if (width == 0) width = stripe_width(local_rows, local_columns);
  width = (width + block - 1) / block * block;  // whole tiles
  for (std::int64_t column = 0; column < local_columns; column += width) {
    const std::int64_t row = first_row_of(grid, rows, cols, column);
    stripes_.push_back({column, row,
                        at::zeros({std::min(width, local_columns - column), local_rows - row},
                                  at::dtype(at::kDouble).device(device))});
  }
}

void DeviceGram::add(const at::Tensor& rows, const at::Tensor& columns, Precision precision) {
  HS_ASSERT(rows.size(0) == columns.size(0) && rows.scalar_type() == panel_type(precision));
  const at::Tensor a = as_operand(rows, precision);
  const at::Tensor b = columns.is_same(rows) ? a : as_operand(columns, precision);
  for (Stripe& stripe : stripes_)
    add_product(stripe.sums, b.narrow(1, stripe.column, stripe.sums.size(0)),
                a.narrow(1, stripe.row, stripe.sums.size(1)), precision);
}

DeviceGram::Segment DeviceGram::segment(const Matrix& matrix, const Stripe& stripe,
                                        std::int64_t column) const {
  const std::int64_t row =
      first_row_of(matrix.grid(), matrix.rows(), matrix.columns(), stripe.column + column);
  const std::int64_t rows = stripe.sums.size(1);
  return {row, matrix.local_rows() - row, column * rows + row - stripe.row};
}

/// Host memory of a stripe's shape in `memory`, which a GPU copies to and from at full speed.
at::Tensor DeviceGram::host_buffer(const Stripe& stripe, at::Tensor& memory) const {
  if (device_.is_cpu()) return stripe.sums;
  const std::int64_t count = stripe.sums.numel();
  if (!memory.defined() || memory.numel() < count)
    memory = at::empty({count}, at::dtype(at::kDouble).pinned_memory(true));
  return memory.narrow(0, 0, count).view(stripe.sums.sizes());
}

void DeviceGram::copy_to(Matrix& matrix) const {
  at::Tensor memory;
  for (const Stripe& stripe : stripes_) {
    at::Tensor host = host_buffer(stripe, memory);
    if (!host.is_same(stripe.sums)) host.copy_(stripe.sums);
    const double* values = host.data_ptr<double>();
    for (std::int64_t j = 0; j < stripe.sums.size(0); ++j) {
      const Segment part = segment(matrix, stripe, j);
      std::copy_n(values + part.in_stripe, part.count, matrix.at(part.first_row, stripe.column + j));
    }
  }
}

void DeviceGram::copy_from(const Matrix& matrix) {
  at::Tensor memory;
  for (Stripe& stripe : stripes_) {
    at::Tensor host = host_buffer(stripe, memory);
    host.zero_();
    double* values = host.data_ptr<double>();
    for (std::int64_t j = 0; j < stripe.sums.size(0); ++j) {
      const Segment part = segment(matrix, stripe, j);
      std::copy_n(matrix.at(part.first_row, stripe.column + j), part.count, values + part.in_stripe);
    }
    if (!host.is_same(stripe.sums)) stripe.sums.copy_(host);
  }
}

}  // namespace headspan
