#include "base/memory.h"

#include <malloc.h>

namespace headspan {

void keep_freed_memory() {
#ifdef __GLIBC__
  mallopt(M_MMAP_MAX, 0);  // the thresholds are ints: they would let blocks of 2 GiB and more go
  mallopt(M_TRIM_THRESHOLD, -1);
#endif
}

}  // namespace headspan
