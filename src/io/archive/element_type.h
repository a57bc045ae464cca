// The types of numbers in files of keys and values, and how they become float32 and again what they were.
#pragma once

#include <cstdint>
#include <vector>

#include "base/word_list.h"

namespace headspan {

enum class ElementType { float16, bfloat16, float32 };

inline const WordList<ElementType>& element_words() {
  static const WordList<ElementType> words{{"float16", ElementType::float16},
                                           {"bfloat16", ElementType::bfloat16},
                                           {"float32", ElementType::float32}};
  return words;
}

inline std::int64_t element_bytes(ElementType type) { return type == ElementType::float32 ? 4 : 2; }

/// Sets values to `count` numbers of a type, little-endian. Exact. Local.
void widen(ElementType type, const std::uint8_t* bytes, std::int64_t count, float* values);

/// Sets bytes to the nearest numbers of the type, ties to even; numbers beyond its range become infinite.
/// Local.
void narrow(ElementType type, const float* values, std::int64_t count, std::uint8_t* bytes);

}  // namespace headspan
