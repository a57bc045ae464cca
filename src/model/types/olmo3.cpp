// OLMo 3: OLMo 2, but three of four layers have a window, and only the others scale their rotation.
#include "model/types/model_type.h"

namespace headspan {

DescribeType describe_olmo2;  // olmo2.cpp

void describe_olmo3(const ConfigFields& fields, ModelConfig& config) {
  describe_olmo2(fields, config);
  RopeFields rope;
  rope.default_theta = 500000;
  config.window_rope = read_window_rope(fields, config, rope);
  config.window_rope->round_once = true;
  config.attention = read_windows(fields, config, 4);
}

}  // namespace headspan
