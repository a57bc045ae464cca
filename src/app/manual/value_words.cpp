#include "app/manual/value_words.h"

#include <sstream>

namespace headspan {

std::vector<std::string> value_words(const JobOption& option) {
  std::vector<std::string> words;
  std::istringstream text(option.allowed);
  std::string before;
  for (std::string part; text >> part; before = part) {
    if (part == "or" && (before == "auto" || before == "none" || before == "paper" || before == "all"))
      words.push_back(before);
    if (part.find('|') == std::string::npos) continue;
    std::istringstream choices(part);
    for (std::string word; std::getline(choices, word, '|');) words.push_back(word);
  }
  return words;
}

bool takes_path(const JobOption& option) { return option.allowed.find("path") != std::string::npos; }

}  // namespace headspan
