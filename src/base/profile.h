// Profile: how many seconds this rank spends in each phase. Entering a phase inside another one stops the
// outer clock, so the seconds of all phases add up to the total. In a phase with collectives a rank's time
// includes waiting for the others. Not the progress of a phase (base/progress.h).
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/log.h"

namespace headspan {

class Profile {
 public:
  using Clock = std::function<double()>;  // as steady_seconds

  explicit Profile(Clock clock = steady_seconds);
  Profile(const Profile&) = delete;
  Profile& operator=(const Profile&) = delete;

  /// The time during which a Phase lives counts for it. Phases end in the reverse order of their beginnings.
  class Phase {
   public:
    explicit Phase(Profile& profile) : profile_(profile) {}
    ~Phase() { profile_.leave(); }
    Phase(const Phase&) = delete;
    Phase& operator=(const Phase&) = delete;

   private:
    Profile& profile_;
  };
  [[nodiscard]] Phase enter(const std::string& phase);

  /// The seconds of each phase, in the order in which they were first entered. The time since a phase last
  /// began or ended is not included yet.
  const std::vector<std::pair<std::string, double>>& seconds() const { return seconds_; }
  /// The seconds of one phase; 0 if it was never entered.
  double seconds(const std::string& phase) const;

 private:
  void leave();
  void count();

  Clock clock_;
  double since_;
  std::vector<std::pair<std::string, double>> seconds_;
  std::vector<std::size_t> open_;  // indices into seconds_, the innermost last
};

/// Returns "1.234" (seconds) for each phase.
LogFields profile_fields(const Profile& profile);

}  // namespace headspan
