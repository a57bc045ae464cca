#include "app/job/value_kind.h"

#include <array>
#include <charconv>
#include <limits>

#include "base/file_name.h"

namespace headspan {
namespace {

std::string number_text(double value) {
  std::array<char, 32> digits{};
  return {digits.data(), std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr};
}

/// Reads all of `text`, as decimal and without regard to the locale.
template <class T>
T read_number(const std::string& text, const char* noun) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc::result_out_of_range) throw BadValue("is out of range");
  if (error != std::errc() || end != text.data() + text.size()) throw BadValue(std::string("is not ") + noun);
  return value;
}

ValueKind<double> ranged(const std::string& lower, double below,
                         const std::function<bool(double)>& high_enough) {
  const bool bounded = below < std::numeric_limits<double>::infinity();
  return {"a number " + lower + (bounded ? " and below " + number_text(below) : ""),
          [=](const std::string& text) {
            const auto value = read_number<double>(text, "a number");
            if (!high_enough(value) || !(value < below)) throw BadValue("is out of range");
            return value;
          },
          number_text};
}

}  // namespace

ValueKind<std::string> text(const std::string& allowed) {
  return {allowed,
          [](const std::string& text) {
            if (text.find_first_of("#\n\r") != std::string::npos)
              throw BadValue("holds a # or a line break, which no job file can carry");
            return text;
          },
          [](const std::string& value) { return value; }};
}

ValueKind<std::string> file_name() {
  const ValueKind<std::string> line = text(kFileNameRule);
  return {line.allowed,
          [line](const std::string& name) {
            if (!name.empty() && !is_file_name(name)) throw BadValue("cannot name a folder");
            return line.read(name);
          },
          line.write};
}

ValueKind<std::int64_t> integer(std::int64_t least, std::int64_t most) {
  const bool bounded = most < std::numeric_limits<std::int64_t>::max();
  return {bounded ? "an integer from " + std::to_string(least) + " to " + std::to_string(most)
                  : "an integer of at least " + std::to_string(least),
          [=](const std::string& text) {
            const auto value = read_number<std::int64_t>(text, "an integer");
            if (value < least) throw BadValue("is too small");
            if (value > most) throw BadValue("is too large");
            return value;
          },
          [](std::int64_t value) { return std::to_string(value); }};
}

ValueKind<double> number(double least, double below) {
  return ranged("of at least " + number_text(least), below, [least](double value) { return value >= least; });
}

ValueKind<double> positive(double below) {
  return ranged("above 0", below, [](double value) { return value > 0; });
}

ValueKind<bool> flag() {
  return {"true|false",
          [](const std::string& text) {
            if (text != "true" && text != "false") throw BadValue("is not true or false");
            return text == "true";
          },
          [](bool value) { return std::string(value ? "true" : "false"); }};
}

std::vector<std::string> split_list(const std::string& text) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string part = text.substr(begin, end - begin);
    const std::size_t first = part.find_first_not_of(" \t");
    if (first == std::string::npos) throw BadValue(text.empty() ? "is empty" : "holds an empty part");
    parts.push_back(part.substr(first, part.find_last_not_of(" \t") - first + 1));
    begin = end + 1;
  }
  return parts;
}

}  // namespace headspan
