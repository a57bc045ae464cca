#include <gtest/gtest.h>

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

TEST(Printable, CutsLongTextBetweenCharacters) {
  const std::string ascii(101, 'a'), fits(100, 'a');

  EXPECT_EQ(printable(ascii), fits + "...");
  EXPECT_EQ(printable(fits), fits);
  EXPECT_EQ(printable(std::string(99, 'a') + "\xC3\xA9"), std::string(99, 'a') + "...");
}

}  // namespace
}  // namespace headspan
