#include "base/clock.h"

#include <chrono>

namespace headspan {

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace headspan
