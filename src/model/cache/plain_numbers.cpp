#include "model/cache/plain_numbers.h"

#include <cstddef>
#include <cstring>
#include <type_traits>

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

namespace headspan {
namespace {

/// The type between T and Stored in a conversion: half-precision types convert from and to float.
template <class Stored, class T>
using Between = std::conditional_t<sizeof(Stored) == 2, float, T>;

template <class Stored, class T>
void write_numbers(const T* z, std::int64_t count, std::byte* out) {
  for (std::int64_t i = 0; i < count; ++i) {
    const auto value = static_cast<Stored>(static_cast<Between<Stored, T>>(z[i]));
    std::memcpy(out + i * static_cast<std::int64_t>(sizeof value), &value, sizeof value);
  }
}

template <class Stored, class T>
void read_numbers(const std::byte* in, std::int64_t count, T* z) {
  if constexpr (std::is_same_v<Stored, T>) {
    std::memcpy(z, in, static_cast<std::size_t>(count) * sizeof(T));
  } else {
    for (std::int64_t i = 0; i < count; ++i) {
      Stored value;
      std::memcpy(&value, in + i * static_cast<std::int64_t>(sizeof value), sizeof value);
      z[i] = static_cast<T>(static_cast<Between<Stored, T>>(value));
    }
  }
}

}  // namespace

std::int64_t plain_bytes(Dtype dtype) {
  if (dtype == Dtype::float64) return 8;
  return dtype == Dtype::float32 ? 4 : 2;
}

template <class T>
void write_plain(Dtype dtype, const T* z, std::int64_t count, std::byte* out) {
  switch (dtype) {
    case Dtype::float64:
      return write_numbers<double>(z, count, out);
    case Dtype::float32:
      return write_numbers<float>(z, count, out);
    case Dtype::bfloat16:
      return write_numbers<c10::BFloat16>(z, count, out);
    case Dtype::float16:
      return write_numbers<c10::Half>(z, count, out);
  }
}

template <class T>
void read_plain(Dtype dtype, const std::byte* in, std::int64_t count, T* z) {
  switch (dtype) {
    case Dtype::float64:
      return read_numbers<double>(in, count, z);
    case Dtype::float32:
      return read_numbers<float>(in, count, z);
    case Dtype::bfloat16:
      return read_numbers<c10::BFloat16>(in, count, z);
    case Dtype::float16:
      return read_numbers<c10::Half>(in, count, z);
  }
}

template void write_plain(Dtype, const float*, std::int64_t, std::byte*);
template void write_plain(Dtype, const double*, std::int64_t, std::byte*);
template void read_plain(Dtype, const std::byte*, std::int64_t, float*);
template void read_plain(Dtype, const std::byte*, std::int64_t, double*);

}  // namespace headspan
