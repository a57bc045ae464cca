// Brings a panel of tokens to the ranks that multiply it. Each rank holds some tokens with all columns of Z;
// rank (p, q) of the grid needs, of the tokens of *all* ranks, the columns of its block rows and of its block
// columns, so that one local product adds its tiles of Z^T Z.
//
// One message per pair of ranks and operand, all in flight at once: each rank receives n (|rows| + |columns|)
// values, which is the least that any algorithm can do, and no rank ever holds all columns of all tokens.
// `start` posts the transfer, `progress` lets it advance between pieces of other work, `finish` completes it.
//
// The operands are column-major [local rows or columns, tokens]; both list the tokens by rank.
#pragma once

#include <cstdint>
#include <vector>

#include "dist/matrix.h"

namespace headspan {

template <class T>
struct PanelOperands {
  const T* rows = nullptr;     ///< [matrix.local_rows(), tokens], leading dimension max(1, local rows)
  const T* columns = nullptr;  ///< [matrix.local_columns(), tokens]; the same array as `rows` on a 1x1 grid
  std::int64_t tokens = 0;     ///< of all ranks
};

template <class T>
class PanelExchange {
 public:
  explicit PanelExchange(const Grid& grid) : grid_(&grid) {}
  ~PanelExchange();
  PanelExchange(const PanelExchange&) = delete;
  PanelExchange& operator=(const PanelExchange&) = delete;

  /// Packs this rank's `tokens` (0 is normal) and posts the transfer of operands for `shape`, a square matrix
  /// on the grid. `fill(token, first, count, out)` writes the values of columns first..first+count of a
  /// token. Collective over the grid.
  template <class Fill>
  void start(const Matrix& shape, std::int64_t tokens, const Fill& fill) {
    if (grid_->comm().size() > 1) pack(tokens, shape.columns(), packed_columns_, fill);
    pack(tokens, shape.rows(), packed_rows_, fill);
    post(shape, tokens);
  }
  /// Lets posted transfers advance. Local.
  void progress();
  /// Waits for the transfer posted last. The operands stay valid until the second `start` from now.
  PanelOperands<T> finish();

 private:
  struct Slot {
    std::vector<T> rows;
    std::vector<T> columns;
    std::int64_t tokens = 0;
  };

  template <class Fill>
  static void pack(std::int64_t tokens, const BlockCyclic& axis, std::vector<T>& packed, const Fill& fill) {
    packed.resize(static_cast<std::size_t>(tokens * axis.size));
    T* out = packed.data();
    for (int part = 0; part < axis.parts; ++part)
      for (std::int64_t token = 0; token < tokens; ++token)
        for (std::int64_t l = 0; l < axis.local_blocks(part); ++l) {
          const std::int64_t block = axis.global_block(part, l);
          fill(token, block * axis.block, axis.block_size(block), out);
          out += axis.block_size(block);
        }
  }
  void post(const Matrix& shape, std::int64_t tokens);
  void post_operand(const std::vector<std::int64_t>& counts, const BlockCyclic& axis, bool is_rows,
                    const std::vector<T>& packed, std::vector<T>& received);

  const Grid* grid_;
  std::vector<T> packed_rows_;  // what this rank sends: by part of the axis, each [part's columns, tokens]
  std::vector<T> packed_columns_;
  Slot slots_[2];
  int current_ = 0;
  std::vector<MPI_Request> requests_;
};

}  // namespace headspan
