// How KVTC divides the coefficients of a group into runs (io/archive/run_coder.h): the runs of 16, 64, 256 or
// 1024 coefficients whose squared errors on some tokens are least for a number of bits, by dynamic
// programming. Along the coefficients, which descend in variance, no run is finer than the one before it.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "dist/comm/mpi.h"
#include "io/archive/run_coder.h"

namespace headspan {

class RunSearch {
 public:
  explicit RunSearch(std::int64_t coefficients);

  /// Adds the squared errors of tokens: [tokens, coefficients]. Local.
  void add(const float* coefficients, std::int64_t tokens);

  /// Adds what the other ranks have. Collective.
  void sum(const Comm& comm);

  /// Returns the runs that lose least of those that take at most `bits` for a token, with 32 bits of scale
  /// for each run: none if nothing fits. Local.
  std::vector<CodedRun> find(std::int64_t bits) const;

 private:
  double error(std::int64_t position, std::size_t length, std::size_t type) const;

  std::int64_t coefficients_, positions_;
  std::vector<double> errors_;   // [positions, lengths, types]
  std::vector<double> squares_;  // [positions]
};

}  // namespace headspan
