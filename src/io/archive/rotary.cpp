#include "io/archive/rotary.h"

#include <cmath>

#include "base/checked.h"

namespace headspan {

RotaryTable::RotaryTable(const RotaryRule& rule, const std::vector<std::int64_t>& positions)
    : half_(static_cast<std::int64_t>(rule.frequencies.size())),
      tokens_(static_cast<std::int64_t>(positions.size())),
      length_(rule.length) {
  for (const std::int64_t position : positions)
    for (const float frequency : rule.frequencies) {
      const double angle = static_cast<float>(position) * frequency;
      cos_.push_back(std::cos(angle));
      sin_.push_back(std::sin(angle));
    }
}

void RotaryTable::rotate(float* x, std::int64_t leading) const {
  for (std::int64_t t = 0; t < tokens_; ++t)
    for (std::int64_t i = 0; i < half_; ++i) {
      float &low = x[t * leading + i], &high = x[t * leading + half_ + i];
      const double c = cos_[to_size(t * half_ + i)], s = sin_[to_size(t * half_ + i)], a = low, b = high;
      low = static_cast<float>(length_ * (a * c - b * s));
      high = static_cast<float>(length_ * (b * c + a * s));
    }
}

void RotaryTable::unrotate(float* x, std::int64_t leading) const {
  for (std::int64_t t = 0; t < tokens_; ++t)
    for (std::int64_t i = 0; i < half_; ++i) {
      float &low = x[t * leading + i], &high = x[t * leading + half_ + i];
      const double c = cos_[to_size(t * half_ + i)], s = sin_[to_size(t * half_ + i)], a = low, b = high;
      low = static_cast<float>((a * c + b * s) / length_);
      high = static_cast<float>((b * c - a * s) / length_);
    }
}

}  // namespace headspan
