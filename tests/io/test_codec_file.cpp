// The file of a codec: what is read is what was written, and everything that is wrong is refused.
#include <gtest/gtest.h>

#include "io/archive/codec_file.h"
#include "io/hdf5/h5_file.h"
#include "small_codec.h"
#include "support/input_error.h"
#include "support/temp_folder.h"

namespace headspan {
namespace {

class CodecFileTest : public testing::Test {
 protected:
  void write() { write_codec(path_, small_codec(), {{"title", std::string("a codec")}}); }

  /// Returns why the file is refused after `step` has edited it.
  template <class Step>
  std::string refusal_after(const Step& step) {
    write();
    {
      H5File file = H5File::edit(path_);
      step(file);
      file.close();
    }
    return input_error_of([&] { read_codec(path_); });
  }

  template <class T>
  static void replace(H5File& file, const std::string& name, const std::vector<T>& values,
                      const std::vector<std::int64_t>& shape) {
    HS_H5(H5Ldelete(file.id(), name.c_str(), H5P_DEFAULT));
    auto dataset = file.create_dataset<T>(name, shape);
    dataset.write_rows(values.data(), 0, shape[0]);
  }

  TempFolder folder_{"codec_file"};
  std::string path_ = folder_.path("codec.h5");
};

void expect_equal(const CodecGroup& read, const CodecGroup& written) {
  EXPECT_EQ(read.first_layer, written.first_layer);
  EXPECT_EQ(read.layers, written.layers);
  EXPECT_EQ(read.mean, written.mean);
  EXPECT_EQ(read.whitening, written.whitening);
  EXPECT_EQ(read.unwhitening, written.unwhitening);
  EXPECT_EQ(read.basis, written.basis);
  EXPECT_EQ(read.scale, written.scale);
  EXPECT_EQ(read.deviations, written.deviations);
  EXPECT_EQ(read.class_weights, written.class_weights);
  EXPECT_EQ(read.class_edges, written.class_edges);
}

TEST_F(CodecFileTest, ReadsWhatWasWritten) {
  write();
  const KvCodec read = read_codec(path_), written = small_codec();
  EXPECT_EQ(read.config_sha256, "config");
  EXPECT_EQ(read.weights_digest, "weights");
  EXPECT_EQ(read.layers, 3);
  ASSERT_EQ(read.curve.size(), 3U);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(read.curve[i].step, written.curve[i].step);
    EXPECT_EQ(read.curve[i].bits, written.curve[i].bits);
    EXPECT_EQ(read.curve[i].kl, written.curve[i].kl);
  }
  EXPECT_EQ(read.kv_heads, 2);
  EXPECT_EQ(read.head_size, 4);
  EXPECT_EQ(read.exact_first, 2);
  EXPECT_EQ(read.lowest_deviation, written.lowest_deviation);
  ASSERT_EQ(read.models.size(), written.models.size());
  for (std::size_t m = 0; m < read.models.size(); ++m) {
    EXPECT_EQ(read.models[m].slots, written.models[m].slots);
    EXPECT_EQ(read.models[m].shift, written.models[m].shift);
    EXPECT_EQ(read.models[m].offset_of_one, written.models[m].offset_of_one);
    EXPECT_EQ(read.models[m].offset_of_more, written.models[m].offset_of_more);
  }
  EXPECT_EQ(read.rotary_of_layer, written.rotary_of_layer);
  ASSERT_EQ(read.rotary.size(), 2U);
  for (std::size_t r = 0; r < 2; ++r) {
    EXPECT_EQ(read.rotary[r].frequencies, written.rotary[r].frequencies);
    EXPECT_EQ(read.rotary[r].length, written.rotary[r].length);
  }
  for (const auto& [stream, groups] : written.streams) {
    ASSERT_EQ(read.streams.at(stream).size(), groups.size());
    for (std::size_t g = 0; g < groups.size(); ++g) expect_equal(read.streams.at(stream)[g], groups[g]);
  }
}

TEST_F(CodecFileTest, RefusesAttributesThatAreWrong) {
  struct Case {
    const char *object, *name;
    H5Value value;
    const char* refusal;
  };
  const std::vector<Case> cases{
      {"/", "headspan_codec", std::string("2.0"), "headspan_codec = 2.0: is not known"},
      {"/", "layers", std::int64_t{0}, "layers = 0: is not one of 1 to"},
      {"/", "layers", std::int64_t{4}, "rotary_of_layer: has not as many numbers"},
      {"/", "kv_heads", std::int64_t{3}, "has another shape"},
      {"/", "head_size", std::int64_t{1} << 50, "head_size"},
      {"/", "exact_first", std::int64_t{-1}, "exact_first = -1"},
      {"/", "lowest_deviation", std::int64_t{100000}, "lowest_deviation"},
      {"/", "rotary_of_layer", std::vector<std::int64_t>{0, 2, -1}, "rotary_of_layer = 2: is no rule"},
      {"/", "rotary_of_layer", std::vector<std::int64_t>{0, 1},
       "has not as many numbers as there are layers"},
      {"rotary/1", "length", 0.0, "rotary/1: length = 0"},
      {"k/1", "first_layer", std::int64_t{1}, "k/1: first_layer = 1"},
      {"k/1", "layers", std::int64_t{2}, "k/1: layers = 2"},
  };
  for (const Case& c : cases) {
    const std::string refusal =
        refusal_after([&](H5File& file) { file.write_attribute(c.object, c.name, c.value); });
    EXPECT_NE(refusal.find(c.refusal), std::string::npos) << refusal;
    EXPECT_NE(refusal.find(path_), std::string::npos) << refusal;
  }
}

TEST_F(CodecFileTest, RefusesNumbersThatAreWrong) {
  const auto expect = [&](const std::string& refusal, const char* expected) {
    EXPECT_NE(refusal.find(expected), std::string::npos) << refusal;
  };
  expect(refusal_after([&](H5File& file) { HS_H5(H5Ldelete(file.id(), "k/1", H5P_DEFAULT)); }),
         "k/1: is missing");
  expect(refusal_after([&](H5File& file) { HS_H5(H5Ldelete(file.id(), "v/0/basis", H5P_DEFAULT)); }),
         "v/0/basis: is missing");
  expect(refusal_after([&](H5File& file) {
           replace<float>(file, "k/1/scale", {1, 2, NAN, 4, 5}, {5});
         }),
         "k/1/scale = nan: is not a finite number");
  expect(refusal_after([&](H5File& file) {
           replace<float>(file, "k/1/scale", {1, 2, -3, 4, 5}, {5});
         }),
         "k/1/scale = -3: is not a positive number");
  expect(refusal_after([&](H5File& file) {
           replace<float>(file, "k/1/scale", {1, 2, 3, 4, 5, 6}, {6});
         }),
         "k/1/basis: has another shape");
  expect(
      refusal_after([&](H5File& file) { replace<float>(file, "k/1/scale", std::vector<float>(9, 1), {9}); }),
      "is no list of 1 to 8 coefficients");
  expect(refusal_after([&](H5File& file) {
           replace<double>(file, "curve/bits", {9, 9.5, 3}, {3});
         }),
         "curve = 1: is a point that a codec cannot have here");
  expect(refusal_after([&](H5File& file) {
           replace<double>(file, "curve/kl", {1e-6, 1e-4, 0}, {3});
         }),
         "curve = 2: is a point");
  expect(refusal_after([&](H5File& file) { replace<std::int64_t>(file, "curve/step", {-64}, {1}); }),
         "curve/step: is no curve of at least two points");
  expect(refusal_after([&](H5File& file) {
           replace<float>(file, "k/1/class_edges", {1, 2, 3, 5, 4, 6, 7}, {7});
         }),
         "k/1/class_edges: are not in order");
  expect(refusal_after([&](H5File& file) {
           replace<std::int16_t>(file, "k/1/deviations", std::vector<std::int16_t>(40, 30000), {8, 5});
         }),
         "k/1/deviations = 30000");
  expect(refusal_after([&](H5File& file) {
           replace<float>(file, "rotary/0/frequencies", {1, 2, 3}, {3});
         }),
         "rotary/0/frequencies: is no list of at most half");
  expect(refusal_after([&](H5File& file) {
           replace<std::uint16_t>(file, "models/slots", std::vector<std::uint16_t>(10000, 2048), {5000, 2});
         }),
         "models/slots: is no table of models");
  expect(refusal_after([&](H5File& file) {
           replace<std::int64_t>(file, "models/shift", std::vector<std::int64_t>(normal_models().size(), 13),
                                 {static_cast<std::int64_t>(normal_models().size())});
         }),
         "models: model of levels: is not one of a codec");
}

}  // namespace
}  // namespace headspan
