#include "stats/gram/panel_values.h"

namespace headspan {
namespace {

template <class P, class T>
void add_shifted_as(const T* in, const double* origin, std::int64_t count, Precision precision,
                    double* sums) {
  with_precision<P>(precision, [=](auto constant) {
    on_this_processor([=]() HS_INLINED {
      const T* __restrict const from = in;
      double* __restrict const to = sums;
      for (std::int64_t j = 0; j < count; ++j)
        to[j] +=
            static_cast<double>(rounded<decltype(constant)::value>(static_cast<double>(from[j]) - origin[j]));
    });
  });
}

}  // namespace

template <class T, class P>
void shift_values(const T* in, const double* origin, std::int64_t count, Precision precision, P* out) {
  with_precision<P>(precision, [=](auto constant) {
    on_this_processor([=]() HS_INLINED {
      const T* __restrict const from = in;
      P* __restrict const to = out;
      for (std::int64_t j = 0; j < count; ++j)
        to[j] = static_cast<P>(rounded<decltype(constant)::value>(static_cast<double>(from[j]) - origin[j]));
    });
  });
}

template <class T>
void add_shifted(const T* in, const double* origin, std::int64_t count, Precision precision, double* sums) {
  if (multiplies_doubles(precision))
    add_shifted_as<double>(in, origin, count, precision, sums);
  else
    add_shifted_as<float>(in, origin, count, precision, sums);
}

template <class T>
void add_values(const T* values, std::int64_t count, double* sums) {
  on_this_processor([=]() HS_INLINED {
    for (std::int64_t j = 0; j < count; ++j) sums[j] += static_cast<double>(values[j]);
  });
}

template void shift_values(const double*, const double*, std::int64_t, Precision, double*);
template void shift_values(const double*, const double*, std::int64_t, Precision, float*);
template void shift_values(const float*, const double*, std::int64_t, Precision, double*);
template void shift_values(const float*, const double*, std::int64_t, Precision, float*);
template void add_shifted(const double*, const double*, std::int64_t, Precision, double*);
template void add_shifted(const float*, const double*, std::int64_t, Precision, double*);
template void add_values(const double*, std::int64_t, double*);
template void add_values(const float*, std::int64_t, double*);

}  // namespace headspan
