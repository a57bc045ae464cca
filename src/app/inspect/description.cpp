#include "app/inspect/description.h"

#include <algorithm>

#include "base/printable.h"

namespace headspan {

std::string format(const Description& description) {
  std::string text = escaped(description.path) + ": " + description.kind;
  if (!description.text.empty()) return text + description.text;
  text += "\n";
  for (const auto& [name, value] : description.facts) {
    if (value.empty()) continue;
    text += "  " + escaped(name) +
            std::string(std::max<std::size_t>(name.size(), 12) - name.size() + 1, ' ') + escaped(value) +
            "\n";
  }
  return text;
}

Values to_json(const Description& description) {
  Values all{{"path", description.path}, {"kind", description.kind}};
  all.update(description.values);
  return all;
}

}  // namespace headspan
