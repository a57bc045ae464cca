#include "base/error.h"
#include "dist/onednn.h"

namespace headspan {

bool has_onednn() { return false; }

std::string onednn_version() { return ""; }

bool onednn_is_faster() { return false; }

void onednn_linear(const float*, std::int64_t, std::int64_t, const float*, std::int64_t, float*) {
  throw Error("this program was built without oneDNN");
}

void onednn_product(const float*, std::int64_t, const float*, std::int64_t, std::int64_t, std::int64_t,
                    std::int64_t, float*) {
  throw Error("this program was built without oneDNN");
}

void onednn_product(const std::uint16_t*, std::int64_t, const std::uint16_t*, std::int64_t, std::int64_t,
                    std::int64_t, std::int64_t, float*) {
  throw Error("this program was built without oneDNN");
}

}  // namespace headspan
