// WordList: the names of an enumeration's values in job files, file attributes and results. Each enumeration
// has its list beside it; words become values where they are read, and nowhere else.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"

namespace headspan {

template <class E>
using WordList = std::vector<std::pair<std::string, E>>;

/// Returns the word for `value`.
template <class E>
const std::string& word_of(const WordList<E>& words, E value) {
  for (const auto& [word, meaning] : words)
    if (meaning == value) return word;
  HS_ASSERT(false);
  return words.front().first;
}

/// Returns the value that `word` stands for; nothing if it is not in the list.
template <class E>
std::optional<E> value_of(const WordList<E>& words, const std::string& word) {
  for (const auto& [known, meaning] : words)
    if (known == word) return meaning;
  return std::nullopt;
}

/// Returns all words, joined by '|'.
template <class E>
std::string joined(const WordList<E>& words) {
  std::string text;
  for (const auto& [word, meaning] : words) text += (text.empty() ? "" : "|") + word;
  return text;
}

}  // namespace headspan
