// The curve of a codec: how many bits each step takes, and what a model loses by it, measured in prefix mode. The
// first half of each sequence is a prompt, whose keys and values are coded and decoded; the second half continues
// it.
#pragma once

#include <vector>

#include "app/run/cached_model.h"
#include "app/run/sample.h"
#include "io/archive/kv_codec.h"

namespace headspan {

/// Measures the curve of a codec that has all else, on held-out sequences, or on others if nothing is held out:
/// from about 8 bits a number to a quarter of a bit. document_ends: ids behind which a new document begins. The
/// same on every rank. Throws InputError if no sequence has two tokens behind the first ones that are kept, or if
/// no two steps differ. Collective over the group.
std::vector<RatePoint> measure_curve(const CachedModel& model, const Sample& sample, const KvCodec& codec,
                                     const std::vector<std::int64_t>& document_ends);

}  // namespace headspan
