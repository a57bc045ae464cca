#include "base/memory.h"

#include <fstream>
#include <string>

#include <malloc.h>

#include "base/error.h"

namespace headspan {
namespace {

/// A size of /proc/self/status. Bytes.
double process_size(const std::string& field) {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    double kib = 0;
    if (word == field + ":" && status >> kib) return 1024 * kib;
  }
  throw Error("/proc/self/status does not tell " + field);
}

}  // namespace

void keep_freed_memory() {
#ifdef __GLIBC__
  mallopt(M_MMAP_MAX, 0);  // the thresholds are ints: they would let blocks of 2 GiB and more go
  mallopt(M_TRIM_THRESHOLD, -1);
#endif
}

double resident_bytes() { return process_size("VmRSS"); }

double peak_resident_bytes() { return process_size("VmHWM"); }

}  // namespace headspan
