// Where the time of a piece of work goes: seconds of this rank by phase. A phase that is entered inside
// another stops the other's clock, so that the seconds of all phases add up to the time spent in any. In a
// phase with collectives a rank's time includes its waiting for the others. Not the progress of a phase
// (base/progress.h).
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"

namespace headspan {

class Profile {
 public:
  using Clock = std::function<double()>;  // seconds since any fixed point, never going back

  explicit Profile(Clock clock = {});  ///< none: the steady clock
  Profile(const Profile&) = delete;
  Profile& operator=(const Profile&) = delete;

  /// Counts for a phase while it lives. Phases end in the reverse of the order in which they began.
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

  /// Of the phases in the order in which they were first entered; without the time since the last of them
  /// began or ended.
  const std::vector<std::pair<std::string, double>>& seconds() const { return seconds_; }
  /// Of one phase; 0 where it never was.
  double seconds(const std::string& phase) const;

 private:
  void leave();
  void count();

  Clock clock_;
  double since_;
  std::vector<std::pair<std::string, double>> seconds_;
  std::vector<std::size_t> open_;  // in seconds_, the innermost last
};

/// phase=1.234 for each phase, for a log.
LogFields profile_fields(const Profile& profile);

}  // namespace headspan
