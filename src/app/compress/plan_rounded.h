// Plans of the algorithms that round all columns of keys and values: what users have elsewhere, to compare
// with. Only oscar is calibrated (app/compress/oscar_rotations.h).
//
//   quantise     every number as it is, from the smallest to the largest of whole heads, which have at
//                least 64 columns together
//
//   hadamard     each head rotated, in compress.bits bits at the levels for a normal distribution, with one
//                gain (TurboQuant, arXiv:2504.19874, without its residual; vLLM's turboquant)
//
//   rotated-q4   each head rotated, in blocks of 32 as llama.cpp's q4_0 (4.5 bits), which rotates so whenever
//                it quantises a cache
//
//   rotated-q8   the same as q8_0 (8.5 bits)
//
//   kivi         keys by column, in groups of 32 tokens; values by token, in groups of 32 columns; from the
//                smallest to the largest, in compress.bits bits. Tokens whose group is not complete, or of
//                which some are recent (evaluate.exact_recent), stay as they are (KIVI, arXiv:2402.02750)
//
//   oscar        each head in the coordinates of its own rotation, from 0.96 (keys) or 0.92 (values) of the
//                smallest number of a token's head to as much of the largest, in compress.bits bits
#pragma once

#include "app/compress/calibration.h"

namespace headspan {

/// Plans every column in few bits, without rotations. rule.algorithm rounds columns. Local.
PlannedStreams plan_rounded(const Job::Compress& rule, const ModelConfig& config);

}  // namespace headspan
