// Plans what a layer stores where it stores latents: in few bits, or as whole columns.
#pragma once

#include "app/compress/calibration.h"

namespace headspan {

/// Throws InputError if a layer has more columns than LAPACK can find the latents of, or fewer than
/// compress.bits names. Local.
void check_latents(const Job::Compress& rule, const ModelConfig& config);

/// Plans latents in few bits or as whole columns, for which Grams of each layer suffice. With `measure`
/// (compress.units = measured) the expected losses of each layer and stream are rescaled so that those of its
/// first plan equal the measured loss, for bands with steps and for bands that share a gain, and each layer
/// and stream gets the ones that then lose less. Collective over the grid of the Grams.
PlannedStreams plan_latents(const Job::Compress& rule, const Calibration& calibration,
                            const MeasuredKl& measure);

/// Returns, by stream and layer, the measured loss over the expected loss of keeping half of the layer's
/// latents as whole columns. The same on every rank. Collective over the grid of the Grams.
std::map<Stream, std::vector<double>> loss_scale(const Job::Compress& rule, const Calibration& calibration,
                                                 const MeasuredKl& measure);

}  // namespace headspan
