// Which GPUs this process sees. A program built without CUDA sees none.
#pragma once

#include <string>

namespace headspan {

struct Gpus {
  int count = 0;
  std::string why_none;  ///< empty where there are some
};

/// Local.
Gpus visible_gpus();

}  // namespace headspan
