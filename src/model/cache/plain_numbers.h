// Numbers without codes as a record holds them: the bytes of any floating-point type, at any address. It
// knows nothing of bands.
#pragma once

#include <cstddef>
#include <cstdint>

#include "model/core/dtype.h"

namespace headspan {

/// Returns the bytes of one number.
std::int64_t plain_bytes(Dtype dtype);

/// Converts `count` numbers to `dtype` and writes them. T is float or double.
template <class T>
void write_plain(Dtype dtype, const T* z, std::int64_t count, std::byte* out);

/// Reads `count` numbers of `dtype`.
template <class T>
void read_plain(Dtype dtype, const std::byte* in, std::int64_t count, T* z);

}  // namespace headspan
