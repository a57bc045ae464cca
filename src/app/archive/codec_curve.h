// The curve of a codec: how many bits each step takes, and what a model loses by it, measured in prefix mode.
// Each token counts as the first one behind a prompt whose keys and values were coded and decoded, as in
// evaluate.
#pragma once

#include <vector>

#include "app/archive/recoder.h"
#include "app/run/cached_model.h"
#include "app/run/sample.h"
#include "io/archive/kv_codec.h"

namespace headspan {

/// Measures the curve of a codec that has all else, on held-out sequences, or on others if nothing is held
/// out: from about 8 bits a number to a quarter of a bit. `model` has caches that go through the recoder. The
/// same on every rank. Throws InputError if no sequence has two tokens behind the first ones that are kept,
/// or if no two steps differ. Collective over the group.
std::vector<RatePoint> measure_curve(const CachedModel& model, const Sample& sample, Recoder& recoder);

}  // namespace headspan
