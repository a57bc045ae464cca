#include "io/schema.h"

#include "base/error.h"
#include "base/printable.h"

namespace headspan {

void check_schema(const std::string& path, const std::string& field, const std::string& schema,
                  const std::string& kind) {
  if (schema.rfind("1.", 0) == 0) return;
  throw InputError(path, field, printable(schema), "is not known",
                   "this headspan reads 1.x; take the one that wrote the " + kind);
}

}  // namespace headspan
