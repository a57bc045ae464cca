#include <cmath>

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/printable.h"

namespace headspan {
namespace {

TEST(Printable, KeepsOrdinaryText) {
  EXPECT_EQ(printable(""), "");
  EXPECT_EQ(printable("model.layers.0 \"q\" \xC3\xA9"), "model.layers.0 \"q\" \xC3\xA9");
}

TEST(Printable, EscapesWhatWouldBreakALineOrATerminal) {
  EXPECT_EQ(printable(std::string("a\nb\x1B[2J\0\x7F", 9)), "a\\x0Ab\\x1B[2J\\x00\\x7F");
}

TEST(Printable, EscapesUnicodesOtherControls) {
  EXPECT_EQ(escaped("\xC2\x9B"
                    "2J \xC2\xA0\xC3\x9B"),
            "\\xC2\\x9B2J \xC2\xA0\xC3\x9B");
}

TEST(Printable, EscapesWhatIsNotSeenOrTurnsTheDirection) {
  EXPECT_EQ(escaped("\xEF\xBB\xBF[model]"), "\\xEF\\xBB\\xBF[model]");  // as Windows begins a file
  EXPECT_EQ(escaped("a\xE2\x80\xAE"
                    "b\xE2\x80\xA8\xE2\x81\xA6"),
            "a\\xE2\\x80\\xAEb\\xE2\\x80\\xA8\\xE2\\x81\\xA6");
  const std::string seen =
      "\xE2\x80\x93 \xE2\x80\xA7\xE2\x80\xAF \xE2\x81\xAA \xE2\x82\xAC \xEF\xBB\xBE \xEF\xBC\x81";
  EXPECT_EQ(escaped(seen), seen);
}

TEST(Printable, EscapesBytesThatAreNotUtf8) {
  EXPECT_EQ(escaped("\x9B"
                    "2J a\xE9 \xC3"),
            "\\x9B2J a\\xE9 \\xC3");
  EXPECT_EQ(escaped("\xC0\x8A \xE0\x82\x9B \xF0\x80\x82\x9B"),  // line break and U+009B, too long
            "\\xC0\\x8A \\xE0\\x82\\x9B \\xF0\\x80\\x82\\x9B");
  EXPECT_EQ(escaped("\xED\xA0\x80 \xF4\x90\x80\x80 \xF5"), "\\xED\\xA0\\x80 \\xF4\\x90\\x80\\x80 \\xF5");
  EXPECT_EQ(escaped("\xE2\x82\n"), "\\xE2\\x82\\x0A");
}

TEST(Printable, KeepsCharactersOfEveryLength) {
  const std::string text =
      "a\x7E \xC2\xA0\xDF\xBF \xE0\xA0\x80\xED\x9F\xBF\xEE\x80\x80 \xF0\x90\x80\x80\xF4\x8F\xBF\xBF";

  EXPECT_EQ(escaped(text), text);
}

TEST(Printable, NothingOfAnInputErrorBreaksItsLine) {
  const InputError error("a\nb.h5", "k\r", "1\x1B[2J", "is\nwrong", std::string(200, 'x'));

  EXPECT_EQ(error.what(), "a\\x0Ab.h5: k\\x0D = 1\\x1B[2J: is\\x0Awrong; " + std::string(200, 'x'));
}

TEST(Printable, NothingOfAnotherErrorBreaksItsLine) {
  EXPECT_EQ(error_message(Error("cannot read: a\nb\x1B.h5")), "cannot read: a\\x0Ab\\x1B.h5");
  EXPECT_EQ(error_message(std::runtime_error("a\x1B\nstack")), "a\\x1B");
}

TEST(Printable, CutsLongTextBetweenCharacters) {
  const std::string ascii(101, 'a'), fits(100, 'a');

  EXPECT_EQ(printable(ascii), fits + "...");
  EXPECT_EQ(printable(fits), fits);
  EXPECT_EQ(printable(std::string(99, 'a') + "\xC3\xA9"), std::string(99, 'a') + "...");
}

TEST(Printable, FormatsNumbersOfAnySizeShortly) {
  EXPECT_EQ(printable(-5.0), "-5");
  EXPECT_EQ(printable(1e39), "1e+39");
  EXPECT_EQ(printable(-std::nan("")), "nan");
}

}  // namespace
}  // namespace headspan
