#include <gtest/gtest.h>

#include "io/inputs/activations.h"
#include "python.h"
#include "support/input_error.h"
#include "support/temp_folder.h"

namespace headspan {
namespace {

using Integers = std::vector<std::int64_t>;

class ActivationsTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = std::make_unique<TempFolder>("activations");
    ASSERT_EQ(run_python("make_activations.py", folder_->path("")), 0);
  }
  static void TearDownTestSuite() { folder_.reset(); }

  static std::string path(const std::string& name) { return folder_->path(name + ".h5"); }

  /// Returns the error for a faulty file, without the file's name.
  static std::string fault_of(const std::string& name) {
    const std::string said = input_error_of([&] {
      Activations file = Activations::open(path(name));
      std::vector<float> values(static_cast<std::size_t>(file.tokens() * file.heads() * file.head_size()));
      file.read(0, file.tokens(), values.data());
    });
    const std::string front = path(name) + ": ";
    return said.rfind(front, 0) == 0 ? said.substr(front.size()) : said;
  }

  static std::unique_ptr<TempFolder> folder_;
};

std::unique_ptr<TempFolder> ActivationsTest::folder_;

TEST_F(ActivationsTest, HeadsComeInOrderOfLayerThenHead) {
  Activations file = Activations::open(path("good"));

  std::vector<double> values(4 * 16);
  file.read(1, 4, values.data());

  EXPECT_EQ(file.layer(), (Integers{0, 0, 1, 1}));
  EXPECT_EQ(file.head(), (Integers{0, 1, 0, 2}));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::size_t token = 1 + i / 16, head = i % 16 / 4, coordinate = i % 4;
    const auto offset = static_cast<double>(100 * file.layer()[head] + 10 * file.head()[head]);
    EXPECT_EQ(values[i], static_cast<double>(token) + offset + static_cast<double>(coordinate) / 8);
  }
}

TEST_F(ActivationsTest, ShapeSequencesAndAttributes) {
  const Activations good = Activations::open(path("good")), plain = Activations::open(path("plain"));
  const Activations bytes = Activations::open(path("bytes"));

  Integers starts, lengths;
  for (const Sequence& sequence : good.sequences()) {
    starts.push_back(sequence.start);
    lengths.push_back(sequence.length);
  }
  EXPECT_EQ(good.tokens(), 6);
  EXPECT_EQ(good.heads(), 4);
  EXPECT_EQ(good.head_size(), 4);
  EXPECT_TRUE(good.is_float32());
  EXPECT_EQ(good.stream(), Stream::q);
  EXPECT_EQ(good.hidden_size(), 64);
  EXPECT_EQ(starts, (Integers{0, 2, 3}));
  EXPECT_EQ(lengths, (Integers{2, 1, 3}));
  EXPECT_FALSE(plain.is_float32());
  EXPECT_EQ(plain.stream(), Stream::k);
  EXPECT_EQ(plain.hidden_size(), std::nullopt);
  EXPECT_EQ(plain.sequences().size(), 6u);
  EXPECT_EQ(bytes.stream(), Stream::v);
  EXPECT_EQ(bytes.hidden_size(), 8);
}

TEST_F(ActivationsTest, EachFaultIsNamed) {
  const std::string values = "a dataset [token, head, coordinate] of float32 or float64 is needed";
  const std::string per_head = "whole numbers of 0 or more [head], 4 of them";

  EXPECT_EQ(fault_of("nan"),
            "activations[4, 2, 3] = nan: is not a finite number; remove the token or the head that made it");
  EXPECT_EQ(fault_of("infinite"),
            "activations[4, 2, 3] = -inf: is not a finite number; remove the token or the head that made it");
  EXPECT_EQ(fault_of("no_values"), "activations: the dataset is missing; " + values);
  EXPECT_EQ(fault_of("group"), "activations: is not a dataset; a dataset of this name is needed");
  EXPECT_EQ(fault_of("rank"), "activations = shape [4, 4]: has not 3 dimensions; " + values);
  EXPECT_EQ(fault_of("empty"), "activations = shape [0, 4, 4]: is empty; " + values);
  EXPECT_EQ(fault_of("half"), "activations: does not hold float32 or float64; " + values);
  EXPECT_EQ(fault_of("integers"), "activations: does not hold float32 or float64; " + values);
  EXPECT_EQ(fault_of("no_layer"), "layer: the dataset is missing; " + per_head);
  EXPECT_EQ(fault_of("layer_length"), "layer = shape [3]: does not fit `activations`; " + per_head);
  EXPECT_EQ(fault_of("head_type"), "head: does not hold integers; " + per_head);
  EXPECT_EQ(fault_of("head_negative"), "head[2] = -1: is negative; " + per_head);
  EXPECT_EQ(fault_of("twice"),
            "layer, head = 1, 2: stands twice, at [0] and [2]; each pair of layer and head names one head");
  EXPECT_EQ(
      fault_of("sequence_length"),
      "sequence = shape [5]: does not fit `activations`; whole numbers of 0 or more [token], 6 of them");
  EXPECT_EQ(fault_of("stream"), "stream = x: is no stream; k, q or v");
  EXPECT_EQ(fault_of("stream_type"), "stream: is not a string; a single string is needed");
  EXPECT_EQ(fault_of("hidden_zero"),
            "hidden_size = 0: is not positive; the model's hidden size, or no such attribute");
  EXPECT_EQ(fault_of("hidden_type"), "hidden_size: is not a whole number; a whole number is needed");
  EXPECT_NE(fault_of("text").find("cannot be read as HDF5"), std::string::npos) << fault_of("text");
  EXPECT_NE(fault_of("absent").find("No such file"), std::string::npos) << fault_of("absent");
}

TEST_F(ActivationsTest, AttributesThatContradictEachOtherAreRefused) {
  const std::string both =
      ": is one thing at the root and another at `activations`; keep one of the two attributes";

  EXPECT_EQ(fault_of("two_streams"), "stream" + both);
  EXPECT_EQ(fault_of("two_sizes"), "hidden_size" + both);
}

TEST_F(ActivationsTest, CompressedOnesAreRead) {
  Activations file = Activations::open(path("compressed"));
  std::vector<double> values(6 * 16);
  file.read(0, 6, values.data());

  EXPECT_EQ(values[4 * 16], 4);  // token 4, layer 0, head 0
}

TEST_F(ActivationsTest, OnesOfTheNewestFormatAreRead) {
  for (const char* name : {"newest", "newest_behind_userblock"}) {
    Activations file = Activations::open(path(name));
    std::vector<double> values(6 * 16);
    file.read(0, 6, values.data());

    EXPECT_EQ(file.stream(), Stream::q);
    EXPECT_EQ(file.hidden_size(), 64);
    EXPECT_EQ(file.sequences().size(), 3u);
    EXPECT_EQ(values[4 * 16], 4);
  }
}

TEST_F(ActivationsTest, WhatIsNotInTheFileIsRefused) {
  const std::string link = ": is a link to another file; copy what it names into this file";
  const std::string elsewhere = "activations: is stored in other files; copy its values into this file";
  const std::string unwritten =
      "activations: has values that the file does not hold; write all of its values";

  EXPECT_EQ(fault_of("link"), "activations" + link);
  EXPECT_EQ(fault_of("soft_link"), "activations" + link);
  EXPECT_EQ(fault_of("storage"), elsewhere);
  EXPECT_EQ(fault_of("virtual"), elsewhere);
  EXPECT_EQ(fault_of("virtual_length"), elsewhere);
  EXPECT_EQ(fault_of("unwritten"), unwritten);
  EXPECT_EQ(fault_of("chunk_missing"), unwritten);
  EXPECT_EQ(fault_of("declared"), unwritten);
  EXPECT_NE(input_error_of([] { Activations::open(folder_->path("fifo")); }).find("is not a regular file"),
            std::string::npos);
}

TEST_F(ActivationsTest, DamagedStringsAreRefused) {
  const std::string lost = "stream: is a string that is not where the file says; the file is damaged";

  EXPECT_EQ(fault_of("heap_no_signature"), lost);
  EXPECT_EQ(fault_of("heap_size"), lost);
  EXPECT_EQ(fault_of("heap_object"), lost);
  EXPECT_EQ(fault_of("heap_object_size"), lost);
  EXPECT_EQ(fault_of("heap_string_cut"), lost);
  EXPECT_EQ(fault_of("newest_heap_object_size"), lost);
}

TEST_F(ActivationsTest, NumbersBeyondSignedOnesAreRefused) {
  EXPECT_EQ(
      fault_of("sequence_clipped"),
      "sequence[0] = 9223372036854775807: is the largest number or above it; whole numbers of 0 or more "
      "[token], 6 of them");
}

}  // namespace
}  // namespace headspan
