#include "device/device_gram.h"

#include <algorithm>
#include <array>
#include <future>

#include <ATen/ATen.h>

#include "base/checked.h"
#include "base/error.h"
#include "device/device_values.h"
#include "device/side_stream.h"
#include "dist/matrix/local_algebra.h"

namespace headspan {
namespace {

constexpr std::int64_t kProductValues = std::int64_t{1} << 26;  // most values of a stripe's product in FP32
constexpr std::int64_t kTileValues = std::int64_t{1} << 25;     // most values of tiles copied at once
constexpr std::int64_t kNarrowest = 256, kWidest = 2048;

/// The first local column and row of a stripe, and how many it has.
struct StripeExtent {
  std::int64_t column, columns, row, rows;

  std::int64_t elements() const { return columns * rows; }
};

/// Cuts a share into stripes of `width` columns, rounded up to whole blocks. 0 means stripe_width().
std::vector<StripeExtent> stripes_of(const SquareShare& share, std::int64_t width) {
  if (width == 0) width = stripe_width(share.local_rows(), share.local_columns());
  const std::int64_t block = share.columns.block;
  width = (width + block - 1) / block * block;
  std::vector<StripeExtent> stripes;
  for (std::int64_t column = 0; column < share.local_columns(); column += width) {
    const std::int64_t row = share.first_row_of(column);
    stripes.push_back(
        {column, std::min(width, share.local_columns() - column), row, share.local_rows() - row});
  }
  return stripes;
}

/// Returns the stripes whose middle element lies in the slice.
std::vector<StripeExtent> stripes_in(const std::vector<StripeExtent>& stripes, GramSlice slice) {
  std::int64_t total = 0, before = 0;
  for (const StripeExtent& stripe : stripes) total += stripe.elements();
  const std::int64_t share = std::max<std::int64_t>(1, (total + slice.of - 1) / slice.of);
  std::vector<StripeExtent> result;
  for (const StripeExtent& stripe : stripes) {
    if ((before + stripe.elements() / 2) / share == slice.number) result.push_back(stripe);
    before += stripe.elements();
  }
  return result;
}

/// Copies a tile to `matrix`; mirrors the lower triangle of a diagonal tile.
void store_tile(const double* values, std::int64_t size, const Tile& tile, Matrix& matrix) {
  double* out = matrix.at(matrix.rows().local(tile.row * size), matrix.columns().local(tile.column * size));
  for (std::int64_t j = 0; j < size; ++j) std::copy_n(values + j * size, size, out + j * matrix.leading());
  if (tile.row == tile.column) mirror_lower(out, size, matrix.leading());
}

}  // namespace

std::int64_t SquareShare::first_row_of(std::int64_t local_column) const {
  const std::int64_t block = columns.global(column, local_column) / columns.block;
  return std::min(rows.first_local_block_from(row, block) * rows.block, local_rows());
}

std::int64_t stripe_width(std::int64_t local_rows, std::int64_t local_columns) {
  const std::int64_t fitting = kProductValues / std::max<std::int64_t>(1, local_rows);
  return std::clamp(std::min(fitting, local_columns / 16), kNarrowest, kWidest);
}

namespace {

/// Returns the elements of the largest of `slices` slices of a share.
std::int64_t most_elements(const SquareShare& share, std::int64_t slices) {
  const std::vector<StripeExtent> stripes = stripes_of(share, 0);
  std::int64_t largest = 0;
  for (std::int64_t slice = 0; slice < slices; ++slice) {
    std::int64_t elements = 0;
    for (const StripeExtent& stripe : stripes_in(stripes, {slice, slices})) elements += stripe.elements();
    largest = std::max(largest, elements);
  }
  return largest;
}

}  // namespace

std::int64_t most_elements(const GridShape& grid, std::int64_t columns, std::int64_t block,
                           std::int64_t slices) {
  std::int64_t largest = 0;
  for (int row = 0; row < grid.rows; ++row)
    for (int column = 0; column < grid.columns; ++column) {
      const SquareShare share{{columns, block, static_cast<int>(grid.rows), 0},
                              {columns, block, static_cast<int>(grid.columns), 0},
                              row,
                              column};
      largest = std::max(largest, most_elements(share, slices));
    }
  return largest;
}

DeviceGram::DeviceGram(const Grid& grid, std::int64_t columns, std::int64_t block, at::Device device,
                       std::int64_t width, GramSlice slice)
    : share_{{columns, block, grid.rows(), 0},
             {columns, block, grid.columns(), 0},
             grid.row(),
             grid.column()},
      device_(device) {
  for (const StripeExtent& stripe : stripes_in(stripes_of(share_, width), slice))
    stripes_.push_back({stripe.column, stripe.row,
                        at::zeros({stripe.columns, stripe.rows}, at::dtype(at::kDouble).device(device))});
}

std::int64_t DeviceGram::elements() const {
  std::int64_t count = 0;
  for (const Stripe& stripe : stripes_) count += stripe.sums.numel();
  return count;
}

void DeviceGram::add(const at::Tensor& rows, const at::Tensor& columns, Precision precision) {
  HS_ASSERT(rows.size(0) == columns.size(0) && rows.scalar_type() == panel_type(precision));
  const PanelOperand a = as_operand(rows, precision);
  const PanelOperand b = columns.is_same(rows) ? a : as_operand(columns, precision);
  for (Stripe& stripe : stripes_)
    add_product(stripe.sums, b.narrow(stripe.column, stripe.sums.size(0)),
                a.narrow(stripe.row, stripe.sums.size(1)), precision);
}

DeviceGram::Segment DeviceGram::segment(const Stripe& stripe, std::int64_t column) const {
  const std::int64_t row = share_.first_row_of(stripe.column + column), rows = stripe.sums.size(1);
  return {row, share_.local_rows() - row, column * rows + row - stripe.row};
}

/// Returns a buffer of a stripe's shape in `memory`, pinned so that a GPU copies at full speed; on the CPU
/// the stripe itself.
at::Tensor DeviceGram::host_buffer(const Stripe& stripe, at::Tensor& memory) const {
  if (device_.is_cpu()) return stripe.sums;
  const std::int64_t count = stripe.sums.numel();
  if (!memory.defined() || memory.numel() < count)
    memory = at::empty({count}, at::dtype(at::kDouble).pinned_memory(true));
  return memory.narrow(0, 0, count).view(stripe.sums.sizes());
}

void DeviceGram::copy_to(Matrix& matrix) const {
  std::array<at::Tensor, 2> memory;
  const std::optional<c10::Stream> stream = current_stream(device_);
  const auto fetch = [&](std::size_t i) {
    const OnStream on(stream);  // whichever thread runs this
    at::Tensor host = host_buffer(stripes_[i], memory[i % 2]);
    if (!host.is_same(stripes_[i].sums)) host.copy_(stripes_[i].sums);
    return host;
  };
  std::future<at::Tensor> ahead;
  for (std::size_t i = 0; i < stripes_.size(); ++i) {
    const at::Tensor host = ahead.valid() ? ahead.get() : fetch(i);
    if (i + 1 < stripes_.size()) ahead = std::async(std::launch::async, fetch, i + 1);
    const double* values = host.data_ptr<double>();
#pragma omp parallel for schedule(static)
    for (std::int64_t j = 0; j < host.size(0); ++j) {
      const Segment part = segment(stripes_[i], j);
      std::copy_n(values + part.offset, part.count, matrix.at(part.first_row, stripes_[i].column + j));
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
      const Segment part = segment(stripe, j);
      std::copy_n(matrix.at(part.first_row, stripe.column + j), part.count, values + part.offset);
    }
    if (!host.is_same(stripe.sums)) stripe.sums.copy_(host);
  }
}

void DeviceGram::add_outer_product(double alpha, const std::vector<double>& x) {
  const auto on_device = [&](const BlockCyclic& axis, int part) {
    return at::tensor(axis.local_values(x, part), at::kDouble).to(device_);
  };
  const at::Tensor rows = on_device(share_.rows, share_.row),
                   columns = on_device(share_.columns, share_.column);
  for (Stripe& stripe : stripes_)
    stripe.sums.addr_(columns.narrow(0, stripe.column, stripe.sums.size(0)),
                      rows.narrow(0, stripe.row, stripe.sums.size(1)), 1, alpha);
}

const DeviceGram::Stripe& DeviceGram::stripe_of(std::int64_t local_column) const {
  const auto next =
      std::upper_bound(stripes_.begin(), stripes_.end(), local_column,
                       [](std::int64_t column, const Stripe& stripe) { return column < stripe.column; });
  HS_ASSERT(next != stripes_.begin());
  return *std::prev(next);
}

at::Tensor DeviceGram::columns(std::int64_t column, std::int64_t count, std::int64_t row) const {
  const Stripe& stripe = stripe_of(column);
  return stripe.sums.narrow(0, column - stripe.column, count)
      .narrow(1, row - stripe.row, share_.local_rows() - row);
}

/// Returns tiles of one stripe in host memory, each column-major: [count, size, size].
at::Tensor DeviceGram::tiles_of(const Stripe& stripe, std::int64_t size, const Tile* tiles,
                                std::int64_t count) const {
  const at::Tensor& sums = stripe.sums;
  HS_ASSERT(sums.size(0) % size == 0 && sums.size(1) % size == 0);
  std::vector<std::int64_t> columns, rows;
  for (const Tile* tile = tiles; tile != tiles + count; ++tile) {
    columns.push_back((share_.columns.local(tile->column * size) - stripe.column) / size);
    rows.push_back((share_.rows.local(tile->row * size) - stripe.row) / size);
  }
  const at::Tensor found =
      sums.view({sums.size(0) / size, size, sums.size(1) / size, size})
          .permute({0, 2, 1, 3})
          .index({at::tensor(columns, at::kLong).to(device_), at::tensor(rows, at::kLong).to(device_)});
  if (device_.is_cpu()) return found.contiguous();
  return at::empty(found.sizes(), at::dtype(at::kDouble).pinned_memory(true)).copy_(found);
}

void DeviceGram::copy_tiles(Matrix& matrix, std::int64_t size, const std::vector<Tile>& tiles) const {
  std::vector<Tile> sorted = tiles;
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const Tile& a, const Tile& b) { return a.column < b.column; });
  const std::int64_t at_once = std::max<std::int64_t>(1, kTileValues / (size * size));
  for (auto first = sorted.begin(); first != sorted.end();) {
    const Stripe& stripe = stripe_of(share_.columns.local(first->column * size));
    const auto in_stripe = [&](const Tile& tile) {
      return share_.columns.local(tile.column * size) < stripe.column + stripe.sums.size(0);
    };
    const auto last = std::find_if_not(first, first + std::min(at_once, sorted.end() - first), in_stripe);
    const at::Tensor host = tiles_of(stripe, size, &*first, last - first);
    const double* values = host.data_ptr<double>();
#pragma omp parallel for schedule(static)
    for (std::int64_t k = 0; k < last - first; ++k)
      store_tile(values + k * size * size, size, first[k], matrix);
    first = last;
  }
}

}  // namespace headspan
