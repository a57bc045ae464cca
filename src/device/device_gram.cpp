#include "device/device_gram.h"

#include <algorithm>
#include <array>
#include <future>

#include <ATen/ATen.h>

#include "base/error.h"
#include "device/device_values.h"

namespace headspan {
namespace {

constexpr std::int64_t kProductValues = std::int64_t{1} << 26;  // of a stripe in FP32
constexpr std::int64_t kNarrowest = 256, kWidest = 2048;

/// One rank's share of a square.
struct LocalAxes {
  BlockCyclic rows, columns;
  int row, column;  // of the process

  std::int64_t local_rows() const { return rows.local_size(row); }
  std::int64_t local_columns() const { return columns.local_size(column); }

  /// The first local row on or below the tile of the diagonal that a local column goes through.
  std::int64_t first_row_of(std::int64_t local_column) const {
    const std::int64_t block = columns.global(column, local_column) / columns.block;
    return std::min(rows.first_local_block_from(row, block) * rows.block, local_rows());
  }
};

/// The place of a stripe.
struct Place {
  std::int64_t column, columns, row, rows;
};

std::vector<Place> places(const LocalAxes& axes, std::int64_t width) {
  if (width == 0) width = stripe_width(axes.local_rows(), axes.local_columns());
  const std::int64_t block = axes.columns.block;
  width = (width + block - 1) / block * block;  // whole tiles
  std::vector<Place> stripes;
  for (std::int64_t column = 0; column < axes.local_columns(); column += width) {
    const std::int64_t row = axes.first_row_of(column);
    stripes.push_back({column, std::min(width, axes.local_columns() - column), row, axes.local_rows() - row});
  }
  return stripes;
}

/// Those whose middle element lies in the piece.
std::vector<Place> places_of(const std::vector<Place>& all, GramPiece piece) {
  std::int64_t total = 0, before = 0;
  for (const Place& stripe : all) total += stripe.columns * stripe.rows;
  const std::int64_t share = std::max<std::int64_t>(1, (total + piece.of - 1) / piece.of);
  std::vector<Place> own;
  for (const Place& stripe : all) {
    const std::int64_t elements = stripe.columns * stripe.rows;
    if ((before + elements / 2) / share == piece.number) own.push_back(stripe);
    before += elements;
  }
  return own;
}

}  // namespace

std::int64_t stripe_width(std::int64_t local_rows, std::int64_t local_columns) {
  const std::int64_t most = kProductValues / std::max<std::int64_t>(1, local_rows);
  return std::clamp(std::min(most, local_columns / 16), kNarrowest, kWidest);
}

std::int64_t most_elements(const GridShape& grid, std::int64_t columns, std::int64_t block,
                           std::int64_t pieces) {
  std::int64_t most = 0;
  for (int row = 0; row < grid.rows; ++row)
    for (int column = 0; column < grid.columns; ++column) {
      const LocalAxes axes{{columns, block, static_cast<int>(grid.rows), 0},
                           {columns, block, static_cast<int>(grid.columns), 0},
                           row,
                           column};
      const std::vector<Place> all = places(axes, 0);
      for (std::int64_t piece = 0; piece < pieces; ++piece) {
        std::int64_t elements = 0;
        for (const Place& stripe : places_of(all, {piece, pieces})) elements += stripe.columns * stripe.rows;
        most = std::max(most, elements);
      }
    }
  return most;
}

DeviceGram::DeviceGram(const Grid& grid, std::int64_t columns, std::int64_t block, at::Device device,
                       std::int64_t width, GramPiece piece)
    : device_(device) {
  const LocalAxes axes{
      {columns, block, grid.rows(), 0}, {columns, block, grid.columns(), 0}, grid.row(), grid.column()};
  for (const Place& stripe : places_of(places(axes, width), piece))
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
  const at::Tensor a = as_operand(rows, precision);
  const at::Tensor b = columns.is_same(rows) ? a : as_operand(columns, precision);
  for (Stripe& stripe : stripes_)
    add_product(stripe.sums, b.narrow(1, stripe.column, stripe.sums.size(0)),
                a.narrow(1, stripe.row, stripe.sums.size(1)), precision);
}

DeviceGram::Segment DeviceGram::segment(const Matrix& matrix, const Stripe& stripe,
                                        std::int64_t column) const {
  const LocalAxes axes{matrix.rows(), matrix.columns(), matrix.grid().row(), matrix.grid().column()};
  const std::int64_t row = axes.first_row_of(stripe.column + column), rows = stripe.sums.size(1);
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
  std::array<at::Tensor, 2> memory;
  const auto fetch = [&](std::size_t i) {
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
      const Segment part = segment(matrix, stripes_[i], j);
      std::copy_n(values + part.in_stripe, part.count, matrix.at(part.first_row, stripes_[i].column + j));
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
