// The plan of what a layer stores as latents in few bits, or as plain codes.
#pragma once

#include "app/compress/calibration.h"

namespace headspan {

/// Throws InputError where a layer has more columns than LAPACK can find the latents of, or fewer than
/// compress.bits names. Local.
void check_latents(const Job::Compress& rule, const ModelConfig& config);

/// Latents in few bits or as whole columns, for which Grams of each layer will do. With `measure`
/// (compress.units = measured) the losses of each layer and stream are put in the unit of what their bands by
/// the formula are measured to lose. Collective over the grid of the Grams.
PlannedStreams plan_latents(const Job::Compress& rule, const Calibration& calibration,
                            const MeasuredKl& measure);

/// By stream, for each layer: what half of its latents, as they are, are measured to lose over what they are
/// expected to. Collective over the grid of the Grams.
std::map<Stream, std::vector<double>> loss_scale(const Job::Compress& rule, const Calibration& calibration,
                                                 const MeasuredKl& measure);

/// Every column in `bits` bits, in groups of whole heads of at least 64 columns. Local.
PlannedStreams plan_quantised(const Job::Compress& rule, const ModelConfig& config);

}  // namespace headspan
