// WordList: what the values of an enumeration are called in job files, in files' attributes and in results.
// Each enumeration has one, beside it; words become values where they are read, and nowhere else.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"

namespace headspan {

template <class E>
using WordList = std::vector<std::pair<std::string, E>>;

/// The word for `value`.
template <class E>
const std::string& word_of(const WordList<E>& words, E value) {
  for (const auto& [word, meaning] : words)
    if (meaning == value) return word;
  HS_ASSERT(false);
  return words.front().first;
}

/// What `word` means; nothing where it is not in the list.
template <class E>
std::optional<E> value_of(const WordList<E>& words, const std::string& word) {
  for (const auto& [known, meaning] : words)
    if (known == word) return meaning;
  return std::nullopt;
}

/// All words, with | between.
template <class E>
std::string joined(const WordList<E>& words) {
  std::string text;
  for (const auto& [word, meaning] : words) text += (text.empty() ? "" : "|") + word;
  return text;
}

}  // namespace headspan
