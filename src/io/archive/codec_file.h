// The file of a codec (HDF5): what `headspan archive calibrate` writes. Field by field:
//
//   /                 attributes: headspan_codec, the schema; config_sha256, weights_digest, layers,
//   kv_heads,
//                     head_size, exact_first, lowest_deviation, rotary_of_layer: [layers]; others that
//                     describe the run
//
//   /curve            step: [P] int64, in sixteenths of an octave; bits: [P] float64, of a coded number; kl:
//   [P]
//                     float64, nats per token
//
//   /models           slots: [M, S] uint16, 0 after a model's last symbol; shift: [M] int64; offsets: [M, 2]
//                     float32, of a level of 1 and of more
//
//   /rotary/RULE      attribute: length; frequencies: [r/2] float32
//
//   /STREAM/GROUP     attributes: first_layer, layers; mean: [D] float32; whitening, unwhitening: [layers,
//                     kv_heads, d, d] float32; basis: [n, D] int8; scale: [n] float32; deviations: [8, n]
//                     int16; class_weights: [n] float32; class_edges: [7] float32
//
// What these mean is told in io/archive/kv_codec.h.
#pragma once

#include <string>

#include "io/archive/kv_codec.h"
#include "io/hdf5/netcdf.h"

namespace headspan {

/// Writes a codec with further attributes of its root. Throws Error. Local.
void write_codec(const std::string& path, const KvCodec& codec, const NetcdfAttributes& attributes);

/// Reads a codec. Throws InputError naming the object if the file is not a codec, has an unknown schema or is
/// inconsistent. Local.
KvCodec read_codec(const std::string& path);

}  // namespace headspan
