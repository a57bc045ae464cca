// What an evaluation keeps of keys and values: everything as it is, everything with the plan's keys and
// values in place of the model's, or what the plan stores.
#pragma once

#include "base/word_list.h"

namespace headspan {

enum class CacheKind { full, simulated, compressed };

inline const WordList<CacheKind>& cache_words() {
  static const WordList<CacheKind> words{
      {"compressed", CacheKind::compressed}, {"simulated", CacheKind::simulated}, {"full", CacheKind::full}};
  return words;
}

}  // namespace headspan
