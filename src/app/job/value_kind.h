// ValueKind: how a value of one C++ type is written in a job file. Kinds compose:
// automatic(list_of(integer(0))) reads "auto" and "0,2". They know nothing of keys and files.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/word_list.h"

namespace headspan {

/// Thrown by `read`; what() says what is wrong with the text.
class BadValue : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

template <class T>
struct ValueKind {
  std::string allowed;
  std::function<T(const std::string&)> read;
  std::function<std::string(const T&)> write;
};

/// Any text in one line without '#', which starts a comment in a job file. May be empty.
ValueKind<std::string> text(const std::string& allowed);

/// Text that can name a file (base/file_name.h). May be empty.
ValueKind<std::string> file_name();

/// One of the words of an enumeration.
template <class E>
ValueKind<E> choice(const WordList<E>& words) {
  return {joined(words),
          [words](const std::string& text) {
            if (const std::optional<E> value = value_of(words, text)) return *value;
            throw BadValue("is not allowed");
          },
          [words](const E& value) { return word_of(words, value); }};
}

/// A decimal integer from `lowest` to `highest`.
ValueKind<std::int64_t> integer(std::int64_t lowest,
                                std::int64_t highest = std::numeric_limits<std::int64_t>::max());

/// A decimal number x with lowest <= x < bound.
ValueKind<double> number(double lowest, double bound);

/// A decimal number x with 0 < x < bound.
ValueKind<double> positive(double bound);

/// true or false.
ValueKind<bool> flag();

/// Splits `text` at its commas, and removes the blanks around the parts. Throws BadValue at an empty part.
std::vector<std::string> split_list(const std::string& text);

/// "auto" (an empty optional) or what `kind` reads.
template <class T>
ValueKind<std::optional<T>> automatic(const ValueKind<T>& kind) {
  return {"auto or " + kind.allowed,
          [kind](const std::string& text) -> std::optional<T> {
            if (text == "auto") return std::nullopt;
            return kind.read(text);
          },
          [kind](const std::optional<T>& value) { return value ? kind.write(*value) : std::string("auto"); }};
}

/// "none" (an empty list) or what `kind` reads.
template <class T>
ValueKind<std::vector<T>> or_none(const ValueKind<std::vector<T>>& kind) {
  return {"none or " + kind.allowed,
          [kind](const std::string& text) { return text == "none" ? std::vector<T>() : kind.read(text); },
          [kind](const std::vector<T>& values) {
            return values.empty() ? std::string("none") : kind.write(values);
          }};
}

/// One of the words of an enumeration, or "auto" (an empty optional).
template <class E>
ValueKind<std::optional<E>> choice_or_auto(const WordList<E>& words) {
  ValueKind<std::optional<E>> kind = automatic(choice(words));
  kind.allowed = "auto|" + joined(words);
  return kind;
}

/// Comma-separated values of `kind`, at least one, none twice.
template <class T>
ValueKind<std::vector<T>> list_of(const ValueKind<T>& kind) {
  return {"a comma-separated list of " + kind.allowed,
          [kind](const std::string& text) {
            std::vector<T> values;
            for (const std::string& part : split_list(text)) {
              const T value = kind.read(part);
              if (std::find(values.begin(), values.end(), value) != values.end())
                throw BadValue("holds " + part + " twice");
              values.push_back(value);
            }
            return values;
          },
          [kind](const std::vector<T>& values) {
            std::string text;
            for (const T& value : values) text += (text.empty() ? "" : ",") + kind.write(value);
            return text;
          }};
}

}  // namespace headspan
