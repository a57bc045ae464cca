// Values of job files: what is read, what is refused in which words, and that what is written is read again.
#include <limits>
#include <locale>

#include <gtest/gtest.h>

#include "app/job/stored_bits.h"
#include "app/job/value_kind.h"

namespace headspan {
namespace {

/// What BadValue says of `text`; the empty text where it is read.
template <class T>
std::string error_message(const ValueKind<T>& kind, const std::string& text) {
  try {
    kind.read(text);
  } catch (const BadValue& error) {
    return error.what();
  }
  return "";
}

TEST(ValueKind, IntegerReadsAllOfADecimalNumberWithinItsRange) {
  const auto kind = integer(-2);

  EXPECT_EQ(kind.read("-2"), -2);
  EXPECT_EQ(kind.read("9223372036854775807"), std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(error_message(kind, "-3"), "is too small");
  EXPECT_EQ(error_message(kind, "9223372036854775808"), "is out of range");
  for (const char* text : {"", " 1", "1 ", "1.0", "1e3", "0x10", "+1", "one", "1,2"})
    EXPECT_EQ(error_message(kind, text), "is not an integer") << text;
  EXPECT_EQ(kind.allowed, "an integer of at least -2");

  const auto bounded = integer(1, 8);
  EXPECT_EQ(bounded.read("8"), 8);
  EXPECT_EQ(error_message(bounded, "9"), "is too large");
  EXPECT_EQ(bounded.allowed, "an integer from 1 to 8");
}

TEST(ValueKind, NumberIsAtLeastAndBelowItsBounds) {
  const auto share = number(0, 1);

  EXPECT_EQ(share.read("0"), 0.0);
  EXPECT_EQ(share.read("0.25"), 0.25);
  EXPECT_EQ(share.read("1e-3"), 1e-3);
  for (const char* text : {"1", "-0.1", "1e400", "nan", "inf"})
    EXPECT_EQ(error_message(share, text), "is out of range") << text;
  for (const char* text : {"", "0,5", "half", "0.5x", " 0.5"})
    EXPECT_EQ(error_message(share, text), "is not a number") << text;
  EXPECT_EQ(share.allowed, "a number of at least 0 and below 1");
}

TEST(ValueKind, PositiveIsAboveZero) {
  const auto kind = positive(std::numeric_limits<double>::infinity());

  EXPECT_EQ(kind.read("1e-300"), 1e-300);
  for (const char* text : {"0", "-1", "nan", "inf"})
    EXPECT_EQ(error_message(kind, text), "is out of range") << text;
  EXPECT_EQ(kind.allowed, "a number above 0");
}

TEST(ValueKind, FlagIsTrueOrFalse) {
  EXPECT_TRUE(flag().read("true"));
  EXPECT_FALSE(flag().read("false"));
  for (const char* text : {"", "1", "True", "yes"})
    EXPECT_EQ(error_message(flag(), text), "is not true or false") << text;
}

TEST(ValueKind, TextHoldsNothingThatAJobFileCannotCarry) {
  const auto kind = text("a folder");

  EXPECT_EQ(kind.read("a b/c"), "a b/c");
  for (const char* value : {"a#b", "a\nb", "a\rb"}) EXPECT_NE(error_message(kind, value), "") << value;
}

TEST(ValueKind, FileNameIsEmptyOrNamesAFolder) {
  for (const std::string& name : {std::string("run 1"), std::string(), std::string(160, 'a')})
    EXPECT_EQ(file_name().read(name), name);
  for (const std::string& name :
       {std::string("a/b"), std::string("."), std::string(".."), std::string("a\tb"), std::string(161, 'a')})
    EXPECT_EQ(error_message(file_name(), name), "cannot name a folder") << name;
  EXPECT_NE(error_message(file_name(), "a#b"), "");
}

TEST(ValueKind, ChoiceIsOneOfItsWords) {
  const auto values = choice(WordList<int>{{"one", 1}, {"two", 2}});

  EXPECT_EQ(values.read("two"), 2);
  for (const char* text : {"", "One", "2", "one|two", "red"})
    EXPECT_EQ(error_message(values, text), "is not allowed") << text;
  EXPECT_EQ(values.allowed, "one|two");
}

TEST(ValueKind, ChoiceOrAutoIsAutoOrOneOfItsWords) {
  const auto kind = choice_or_auto(WordList<int>{{"one", 1}, {"two", 2}});

  EXPECT_FALSE(kind.read("auto").has_value());
  EXPECT_EQ(kind.read("two"), 2);
  EXPECT_EQ(error_message(kind, "three"), "is not allowed");
  EXPECT_EQ(kind.write({}), "auto");
  EXPECT_EQ(kind.write(1), "one");
  EXPECT_EQ(kind.allowed, "auto|one|two");
}

TEST(ValueKind, AutomaticIsAutoOrAValue) {
  const auto kind = automatic(integer(1));

  EXPECT_FALSE(kind.read("auto").has_value());
  EXPECT_EQ(kind.read("3"), 3);
  EXPECT_EQ(error_message(kind, "0"), "is too small");
  EXPECT_EQ(error_message(kind, "Auto"), "is not an integer");
  EXPECT_EQ(kind.allowed, "auto or an integer of at least 1");
}

TEST(ValueKind, ListHoldsEachValueOnce) {
  const auto kind = list_of(integer(0));

  EXPECT_EQ(kind.read("3, 1 ,2"), (std::vector<std::int64_t>{3, 1, 2}));
  EXPECT_EQ(error_message(kind, "1,2,1"), "holds 1 twice");
  EXPECT_EQ(error_message(kind, "1,01"), "holds 01 twice");
  EXPECT_EQ(error_message(kind, "1,,2"), "holds an empty part");
  EXPECT_EQ(error_message(kind, "1,"), "holds an empty part");
  EXPECT_EQ(error_message(kind, ""), "is empty");
  EXPECT_EQ(error_message(kind, "1,x"), "is not an integer");
}

TEST(ValueKind, WhatIsWrittenIsReadAgain) {
  for (const double value : {0.1, 1.0 / 3, 5e-324, 1.7976931348623157e308, 0.0, 123456789.0})
    EXPECT_EQ(number(0, std::numeric_limits<double>::infinity()).read(number(0, 1).write(value)), value);
  for (const std::int64_t value : {std::int64_t{0}, std::numeric_limits<std::int64_t>::max()})
    EXPECT_EQ(integer(0).read(integer(0).write(value)), value);
  for (const bool value : {true, false}) EXPECT_EQ(flag().read(flag().write(value)), value);
  const auto kind = automatic(list_of(integer(0)));
  EXPECT_EQ(kind.write(std::nullopt), "auto");
  EXPECT_EQ(kind.write(std::vector<std::int64_t>{4, 7}), "4,7");
}

TEST(ValueKind, StoredBitsAreAWidthOrBandsThatFallInBits) {
  for (const char* text : {"auto", "16", "8", "4", "3", "16x8,32x4,8x2", "4x7,8x1"})
    EXPECT_EQ(stored_bits().write(stored_bits().read(text)), text);
  EXPECT_TRUE(stored_bits().read("auto").is_automatic());
  EXPECT_EQ(stored_bits().read("3").width, 3);
  const StoredBits bits = stored_bits().read("16x8, 32x4");
  ASSERT_EQ(bits.bands.size(), 2U);
  EXPECT_EQ(bits.bands[1].columns * 100 + bits.bands[1].bits, 3204);
  const std::pair<const char*, const char*> refused[] = {{"12", "is no list of bands"},
                                                         {"16x9", "has a band of 9 bits"},
                                                         {"16x0", "is too small"},
                                                         {"0x4", "is too small"},
                                                         {"8x4,8x4", "has bands of rising bits"},
                                                         {"8x4,8x5", "has bands of rising bits"},
                                                         {"8xx4", "is not an integer"},
                                                         {"", "is empty"}};
  for (const auto& [text, what] : refused) EXPECT_EQ(error_message(stored_bits(), text), what) << text;
}

}  // namespace
}  // namespace headspan
