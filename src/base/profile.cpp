#include "base/profile.h"

#include <algorithm>
#include <cstdio>

namespace headspan {

Profile::Profile(Clock clock) : clock_(std::move(clock)), since_(clock_()) {}

Profile::Phase Profile::enter(const std::string& phase) {
  count();
  const auto known =
      std::find_if(seconds_.begin(), seconds_.end(), [&](const auto& entry) { return entry.first == phase; });
  open_.push_back(static_cast<std::size_t>(known - seconds_.begin()));
  if (known == seconds_.end()) seconds_.emplace_back(phase, 0.0);
  return Phase(*this);
}

void Profile::leave() {
  count();
  open_.pop_back();
}

/// Adds the time since the last change to the innermost phase.
void Profile::count() {
  const double now = clock_();
  if (!open_.empty()) seconds_[open_.back()].second += now - since_;
  since_ = now;
}

double Profile::seconds(const std::string& phase) const {
  for (const auto& [name, seconds] : seconds_)
    if (name == phase) return seconds;
  return 0;
}

LogFields profile_fields(const Profile& profile) {
  LogFields fields;
  for (const auto& [name, seconds] : profile.seconds()) {
    char text[32];
    std::snprintf(text, sizeof text, "%.3f", seconds);
    fields.emplace_back(name, text);
  }
  return fields;
}

}  // namespace headspan
