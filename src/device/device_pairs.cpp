#include "device/device_pairs.h"

#include <algorithm>
#include <utility>

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>

#include "base/checked.h"
#include "device/side_stream.h"

namespace headspan {
namespace {

/// A head and the local rows below its diagonal tile.
struct Strip {
  std::int64_t head = 0, first = 0, rows = 0;
};

/// One tensor per part: fit, and held-out if there is one.
using Parts = std::vector<at::Tensor>;

/// The sums of a strip in host memory, valid after `synchronize`.
struct StripSums {
  Strip strip;
  at::Tensor
      values;  // [2, parts, rows]: explained, errors; for the rows' heads from the strip's, then vice versa
};

/// Returns the explained sums of squares and the held-out errors, summed over the regressors, which are
/// dimension `dim` of x, product and cross.
Parts sums_over(const at::Tensor& x, std::int64_t dim, const at::Tensor& product, const at::Tensor& cross,
                const at::Tensor& diagonal) {
  Parts sums{x.square().sum(dim).flatten()};
  if (product.defined()) sums.push_back((diagonal + product.sub(cross, 2).mul_(x).sum(dim)).flatten());
  return sums;
}

class DevicePairs {
 public:
  DevicePairs(const RegressionData& data, const PairSources& sources, at::Device device,
              const ResidentGrams* resident)
      : data_(data),
        sources_(sources),
        resident_(resident),
        matrix_(data.fit.matrix),
        rows_(matrix_.rows()),
        columns_(matrix_.columns()),
        row_(matrix_.grid().row()),
        column_(matrix_.grid().column()),
        d_(data.layout.head_size),
        device_(device) {
    by_row_ = factors_of(rows_, row_);
    by_column_ = factors_of(columns_, column_);
    if (!data.heldout) return;
    row_diagonal_ = on_device(rows_.local_values(data.moment_diagonal, row_));
    diagonal_ = on_device(data.moment_diagonal);
  }

  void compute(const PairSink& sink) {
    StripSums previous;
    for (const Strip& strip : strips()) {
      const Parts parts = resident_ != nullptr ? view(strip) : stage(strip);
      synchronize();
      StripSums sums = multiply(strip, parts);
      emit(previous, sink);
      previous = std::move(sums);
    }
    synchronize();
    emit(previous, sink);
  }

 private:
  at::Tensor on_device(const std::vector<double>& values) const {
    return at::tensor(values, at::kDouble).to(device_);
  }

  /// Returns U^T, and S^T with a held-out part, of the heads of this rank's share of an axis: [heads, d, d].
  Parts factors_of(const BlockCyclic& axis, int part) const {
    std::vector<double> whiteners, moments;
    const std::int64_t heads = axis.local_size(part) / d_;
    for (std::int64_t h = 0; h < heads; ++h) {
      const PairSource& source = sources_.at(axis.global(part, h * d_) / d_);
      whiteners.insert(whiteners.end(), source.whitener.begin(), source.whitener.end());
      moments.insert(moments.end(), source.moment.begin(), source.moment.end());
    }
    Parts factors{on_device(whiteners).view({heads, d_, d_})};
    if (data_.heldout) factors.push_back(on_device(moments).view({heads, d_, d_}));
    return factors;
  }

  std::vector<Strip> strips() const {
    std::vector<Strip> strips;
    for (std::int64_t column = 0; column < matrix_.local_columns(); column += d_) {
      const std::int64_t head = columns_.global(column_, column) / d_;
      const std::int64_t first = rows_.local_before(row_, (head + 1) * d_);
      if (first < matrix_.local_rows()) strips.push_back({head, first, matrix_.local_rows() - first});
    }
    return strips;
  }

  /// Returns the strip of a resident Gram: [d, rows].
  Parts view(const Strip& strip) const {
    const std::int64_t column = columns_.local(strip.head * d_);
    Parts parts;
    for (const DeviceGram* gram : {&resident_->fit(), resident_->heldout()})
      if (gram != nullptr) parts.push_back(gram->columns(column, d_, strip.first));
    return parts;
  }

  /// Returns the strip in host memory: [d, rows]; for a GPU a copy in pinned memory that it no longer reads.
  Parts stage(const Strip& strip) {
    Parts parts;
    for (const HeadGram* gram : {&data_.fit, data_.heldout ? &*data_.heldout : nullptr}) {
      if (gram == nullptr) continue;
      const Matrix& matrix = gram->matrix;
      const double* from = matrix.at(strip.first, columns_.local(strip.head * d_));
      at::Tensor values =
          at::from_blob(const_cast<double*>(from), {d_, strip.rows}, {matrix.leading(), 1}, at::kDouble);
      if (!device_.is_cpu()) {
        at::Tensor& memory = pinned_[turn_][parts.size()];
        if (!memory.defined())  // the first strip is the longest
          memory = at::empty({d_ * strip.rows}, at::dtype(at::kDouble).pinned_memory(true));
        values = memory.narrow(0, 0, d_ * strip.rows).view({d_, strip.rows}).copy_(values);
      }
      parts.push_back(values);
    }
    turn_ = 1 - turn_;
    return parts;
  }

  /// Waits until the device has finished this thread's work.
  void synchronize() const {
    if (const std::optional<c10::Stream> stream = current_stream(device_)) stream->synchronize();
  }

  StripSums multiply(const Strip& strip, const Parts& staged) const {
    Parts parts;
    for (const at::Tensor& part : staged) parts.push_back(part.to(device_, /*non_blocking=*/true));
    Parts sums = from_strip(strip, parts);
    for (const at::Tensor& sum : to_strip(strip, parts)) sums.push_back(sum);
    const at::Tensor values = at::stack(sums);
    if (device_.is_cpu()) return {strip, values};
    at::Tensor result = at::empty(values.sizes(), at::dtype(at::kDouble).pinned_memory(true));
    return {strip, result.copy_(values, /*non_blocking=*/true)};
  }

  /// Fits the heads of the rows from the strip's: X^T = U^T strip.
  Parts from_strip(const Strip& strip, const Parts& parts) const {
    const std::int64_t head = columns_.local(strip.head * d_) / d_;
    const at::Tensor u = by_column_[0][head], x = at::mm(u, parts[0]);
    if (parts.size() == 1) return sums_over(x, 0, {}, {}, {});
    return sums_over(x, 0, at::mm(by_column_[1][head], x), at::mm(u, parts[1]),
                     row_diagonal_.narrow(0, strip.first, strip.rows));
  }

  /// Fits the strip's head from each head i of the rows: X = strip_i U_i, where strip_i are the d columns of
  /// the strip that belong to head i.
  Parts to_strip(const Strip& strip, const Parts& parts) const {
    const std::int64_t first = strip.first / d_, heads = strip.rows / d_;
    const auto factors = [&](const at::Tensor& all) { return all.narrow(0, first, heads).transpose(1, 2); };
    const auto tiles = [&](const at::Tensor& part) {  // [heads, d of the strip, d of the head]
      return part.as_strided({heads, d_, d_}, {d_, part.stride(0), 1}, part.storage_offset());
    };
    const at::Tensor u = factors(by_row_[0]), x = at::bmm(tiles(parts[0]), u);
    if (parts.size() == 1) return sums_over(x, 2, {}, {}, {});
    return sums_over(x, 2, at::bmm(x, factors(by_row_[1])), at::bmm(tiles(parts[1]), u),
                     diagonal_.narrow(0, strip.head * d_, d_));
  }

  void emit(const StripSums& sums, const PairSink& sink) const {
    if (!sums.values.defined()) return;
    const Strip& strip = sums.strip;
    const double* values = sums.values.data_ptr<double>();
    const auto at = [&](std::int64_t kind, std::int64_t row) { return values + kind * strip.rows + row; };
    const std::int64_t kinds = data_.heldout ? 2 : 1;
#pragma omp parallel for
    for (std::int64_t i = 0; i < strip.rows; i += d_) {
      const std::int64_t head = rows_.global(row_, strip.first + i) / d_;
      sink(head, strip.head, at(0, i), data_.heldout ? at(1, i) : nullptr);
      sink(strip.head, head, at(kinds, i), data_.heldout ? at(kinds + 1, i) : nullptr);
    }
  }

  const RegressionData& data_;
  const PairSources& sources_;
  const ResidentGrams* resident_;
  const Matrix& matrix_;
  const BlockCyclic &rows_, &columns_;
  int row_, column_;
  std::int64_t d_;
  at::Device device_;
  Parts by_row_, by_column_;            // factors_of the process row and column
  at::Tensor row_diagonal_, diagonal_;  // diagonal of M: [local rows] and [D]
  at::Tensor pinned_[2][2];             // by turn and part
  int turn_ = 0;
};

}  // namespace

PairSums device_pair_sums(at::Device device, const ResidentGrams* resident) {
  return [device, resident](const RegressionData& data, const PairSources& sources, const PairSink& sink) {
    const c10::DeviceGuard on(device);
    DevicePairs(data, sources, device, resident).compute(sink);
  };
}

std::int64_t device_pair_bytes(const RegressionData& data) {
  const Matrix& matrix = data.fit.matrix;
  const std::int64_t rows = matrix.local_rows(), columns = matrix.local_columns();
  const std::int64_t parts = data.heldout ? 2 : 1;
  // The factors of rows and columns, the strip, and what is computed from it: X, squares, product, cross,
  // difference.
  const std::int64_t values = parts * (2 * rows + columns) + 5 * rows;
  const std::int64_t diagonals = rows + matrix.rows().size;
  return static_cast<std::int64_t>(sizeof(double)) * (values * data.layout.head_size + diagonals);
}

}  // namespace headspan
