#include "app/job/stored_bits.h"

#include "base/checked.h"

namespace headspan {
namespace {

const WordList<int>& width_words() {
  static const WordList<int> words{{"16", kPlainBits}, {"8", 8}, {"5", 5}, {"4", 4}, {"3", 3}, {"2", 2}};
  return words;
}

std::vector<Band> read_bands(const std::string& text) {
  std::vector<Band> bands;
  for (const std::string& part : split_list(text)) {
    const std::size_t cross = part.find('x');
    if (cross == std::string::npos) throw BadValue("is no list of bands");
    const std::int64_t columns = integer(1).read(part.substr(0, cross)),
                       bits = integer(1).read(part.substr(cross + 1));
    if (bits > 8) throw BadValue("has a band of " + std::to_string(bits) + " bits");
    if (!bands.empty() && bits >= bands.back().bits) throw BadValue("has bands of rising bits");
    bands.push_back({columns, to_int(bits)});
  }
  return bands;
}

std::string write_bands(const std::vector<Band>& bands) {
  std::string text;
  for (const Band& band : bands)
    text += (text.empty() ? "" : ",") + std::to_string(band.columns) + "x" + std::to_string(band.bits);
  return text;
}

}  // namespace

ValueKind<StoredBits> stored_bits() {
  return {
      "auto, 16, 8, 5, 4, 3, 2, or bands COUNTxBITS such as 16x8,32x6 with 1 to 8 bits, more before fewer",
      [](const std::string& text) -> StoredBits {
        if (const auto width = value_of(width_words(), text)) return {width, {}};
        if (text == "auto") return {};
        return {{}, read_bands(text)};
      },
      [](const StoredBits& bits) -> std::string {
        if (bits.is_automatic()) return "auto";
        return bits.width ? word_of(width_words(), *bits.width) : write_bands(bits.bands);
      }};
}

}  // namespace headspan
