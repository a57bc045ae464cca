// How KVTC (arXiv 2511.01815) codes the coefficients of a transform, to compare headspan's codec with: runs
// of neighbouring coefficients are rounded to 2, 4 or 8 bits between the least and the largest of the run in
// each token, those behind the last run are dropped, and the bytes of a block go through DEFLATE. Not how
// long the runs are (app/archive/run_search.h).
#pragma once

#include <cstdint>
#include <vector>

namespace headspan {

/// Neighbouring coefficients that are rounded alike.
struct CodedRun {
  std::int64_t count = 0;
  int bits = 0;  ///< 2, 4 or 8
};

/// Sets `count` coefficients of a token to what is left of them when they are rounded as one run. Returns the
/// sum of the squared errors. Least number and step are rounded to float16, as they are stored. Local.
double round_run(int bits, std::int64_t count, float* coefficients);

/// Codes coefficients: [tokens, columns], finite. Local.
std::vector<std::uint8_t> encode_runs(const std::vector<CodedRun>& runs, const float* coefficients,
                                      std::int64_t tokens, std::int64_t columns);

/// Sets coefficients [tokens, columns]. Throws InputError if the bytes are not those of such a block. Local.
void decode_runs(const std::vector<CodedRun>& runs, const std::uint8_t* bytes, std::int64_t size,
                 std::int64_t tokens, std::int64_t columns, float* coefficients);

}  // namespace headspan
