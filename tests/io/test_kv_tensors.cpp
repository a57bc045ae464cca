// Files of keys and values: every number at its place, from every format and type.
#include <cmath>
#include <cstring>
#include <fstream>

#include <gtest/gtest.h>

#include "base/checked.h"
#include "io/archive/kv_tensors.h"
#include "io/hdf5/h5_file.h"
#include "safetensors_samples.h"
#include "support/input_error.h"
#include "support/temp_folder.h"

namespace headspan {
namespace {

constexpr std::int64_t kLayers = 2, kHeads = 3, kTokens = 5, kHeadSize = 4;
constexpr std::int64_t kNumbers = kLayers * kHeads * kTokens * kHeadSize;

/// A number of every type that tells where it belongs.
float number_at(Stream stream, std::int64_t index) {
  return static_cast<float>(stream == Stream::k ? index + 1 : -index - 1) / 4;
}

std::string tensor_bytes(Stream stream, ElementType type) {
  std::vector<float> values;
  for (std::int64_t i = 0; i < kNumbers; ++i) values.push_back(number_at(stream, i));
  std::string bytes(to_size(kNumbers * element_bytes(type)), '\0');
  narrow(type, values.data(), kNumbers, reinterpret_cast<std::uint8_t*>(bytes.data()));
  return bytes;
}

class KvTensorsTest : public testing::Test {
 protected:
  /// Writes a safetensors file with v first; the fields of k and v are given as they stand in the header.
  void write_safetensors(const std::string& k, const std::string& v, const std::string& bytes) {
    std::ofstream(path_, std::ios::binary)
        << safetensors_file("{\"v\":{" + v + "},\"k\":{" + k + "}}", 0) << bytes;
  }

  void write_safetensors(ElementType type, const char* name) {
    const std::string k = tensor_bytes(Stream::k, type), v = tensor_bytes(Stream::v, type);
    const std::string fields = std::string(R"("dtype":")") + name + R"(","shape":[2,3,5,4],"data_offsets":[)";
    const std::string middle = std::to_string(v.size());
    write_safetensors(fields + middle + "," + std::to_string(v.size() + k.size()) + "]",
                      fields + "0," + middle + "]", v + k);
  }

  /// Writes an HDF5 file, of which v has this shape.
  void write_hdf5(bool half, const std::vector<hsize_t>& shape_of_v = {2, 3, 5, 4}) {
    const H5Handle file(HS_H5(H5Fcreate(path_.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT)), H5Fclose);
    const H5Handle type(HS_H5(H5Tcopy(H5T_IEEE_F32LE)), H5Tclose);
    if (half) {
      HS_H5(H5Tset_fields(type.get(), 15, 10, 5, 0, 10));
      HS_H5(H5Tset_size(type.get(), 2));
      HS_H5(H5Tset_ebias(type.get(), 15));
    }
    for (const auto& [name, stream] : cached_stream_words()) {
      const std::vector<hsize_t> shape = stream == Stream::v ? shape_of_v : std::vector<hsize_t>{2, 3, 5, 4};
      const H5Handle space(HS_H5(H5Screate_simple(static_cast<int>(shape.size()), shape.data(), nullptr)),
                           H5Sclose);
      const H5Handle dataset(HS_H5(H5Dcreate(file.get(), name.c_str(), type.get(), space.get(), H5P_DEFAULT,
                                             H5P_DEFAULT, H5P_DEFAULT)),
                             H5Dclose);
      std::vector<float> values(1000);
      for (std::size_t i = 0; i < values.size(); ++i)
        values[i] = number_at(stream, static_cast<std::int64_t>(i));
      HS_H5(H5Dwrite(dataset.get(), H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()));
    }
  }

  void expect_numbers(ElementType type) const {
    const KvTensors tensors(path_);
    EXPECT_EQ(tensors.shape().layers, kLayers);
    EXPECT_EQ(tensors.shape().heads, kHeads);
    EXPECT_EQ(tensors.shape().tokens, kTokens);
    EXPECT_EQ(tensors.shape().head_size, kHeadSize);
    EXPECT_EQ(tensors.shape().type, type);
    for (const std::vector<std::int64_t>& tokens :
         {std::vector<std::int64_t>{0, 1, 2, 3, 4}, {3}, {1, 4}, {}})
      for (const Stream stream : {Stream::k, Stream::v})
        for (std::int64_t layer = 0; layer < kLayers; ++layer) {
          std::vector<float> found(tokens.size() * to_size(kHeads * kHeadSize));
          tensors.read(stream, layer, tokens, found.data());
          for (std::size_t t = 0; t < tokens.size(); ++t)
            for (std::int64_t head = 0; head < kHeads; ++head)
              for (std::int64_t i = 0; i < kHeadSize; ++i) {
                const std::int64_t index = ((layer * kHeads + head) * kTokens + tokens[t]) * kHeadSize + i;
                ASSERT_EQ(found[(t * to_size(kHeads) + to_size(head)) * to_size(kHeadSize) + to_size(i)],
                          number_at(stream, index));
              }
        }
  }

  std::string refusal() const {
    return input_error_of([&] { KvTensors{path_}; });
  }

  TempFolder folder_{"kv_tensors"};
  std::string path_ = folder_.path("kv");
};

TEST_F(KvTensorsTest, ReadsSafetensorsOfEveryType) {
  for (const auto& [type, name] : {std::pair{ElementType::float16, "F16"},
                                   {ElementType::bfloat16, "BF16"},
                                   {ElementType::float32, "F32"}}) {
    write_safetensors(type, name);
    expect_numbers(type);
  }
}

TEST_F(KvTensorsTest, ReadsHdf5OfEitherType) {
  for (const bool half : {true, false}) {
    write_hdf5(half);
    expect_numbers(half ? ElementType::float16 : ElementType::float32);
  }
}

// Pieces in any order, of all types and formats.
TEST_F(KvTensorsTest, ReadsWhatWasWritten) {
  using Format = KvTensorsWriter::Format;
  for (const Format format : {Format::safetensors, Format::hdf5})
    for (const ElementType type : {ElementType::float16, ElementType::bfloat16, ElementType::float32}) {
      const KvShape shape{kLayers, kHeads, kTokens, kHeadSize, type};
      if (format == Format::hdf5 && type == ElementType::bfloat16) {
        EXPECT_NE(input_error_of([&] { KvTensorsWriter(path_, shape, format); }).find("cannot hold bfloat16"),
                  std::string::npos);
        continue;
      }
      KvTensorsWriter writer(path_, shape, format);
      for (const std::vector<std::int64_t>& tokens : {std::vector<std::int64_t>{1, 3, 4}, {0, 2}})
        for (const Stream stream : {Stream::v, Stream::k})
          for (std::int64_t layer = 0; layer < kLayers; ++layer) {
            std::vector<float> values;
            for (const std::int64_t token : tokens)
              for (std::int64_t head = 0; head < kHeads; ++head)
                for (std::int64_t i = 0; i < kHeadSize; ++i)
                  values.push_back(
                      number_at(stream, ((layer * kHeads + head) * kTokens + token) * kHeadSize + i));
            writer.write(stream, layer, tokens, values.data());
          }
      writer.close();
      expect_numbers(type);
    }
}

TEST_F(KvTensorsTest, RefusesWhatIsNoKeysAndValues) {
  const auto expect = [&](const char* expected) {
    EXPECT_NE(refusal().find(expected), std::string::npos) << refusal();
  };
  const std::string right = R"("dtype":"F16","shape":[1,1,2,1],"data_offsets":[0,4])";
  const auto with = [](const std::string& dtype, const std::string& shape, int begin, int end) {
    return R"("dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":[)" + std::to_string(begin) +
           "," + std::to_string(end) + "]";
  };
  write_safetensors(with("F16", "[1,1,4,1]", 4, 12), right, std::string(12, '\0'));
  expect("v = [1, 1, 2, 1]: has another shape than k");
  write_safetensors(with("BF16", "[1,1,2,1]", 4, 8), right, std::string(8, '\0'));
  expect("v = float16: is of another type than k");
  write_safetensors(with("I16", "[1,1,2,1]", 4, 8), right, std::string(8, '\0'));
  expect("k = I16: is not F16, BF16 or F32");
  write_safetensors(with("F16", "[1,2,1]", 4, 8), right, std::string(8, '\0'));
  expect("k = [1, 2, 1]: has not four dimensions");
  write_safetensors(with("F16", "[0,1,2,1]", 4, 4), right, std::string(4, '\0'));
  expect("k = [0, 1, 2, 1]: is empty");
  std::ofstream(path_, std::ios::binary)
      << safetensors_file("{\"k\":{" + right + "}}", 0) << std::string(4, '\0');
  expect("v: is missing");
  std::ofstream(path_, std::ios::binary) << "no tensors at all";
  EXPECT_NE(refusal(), "nothing was refused");
  write_hdf5(true, {2, 3, 5, 3});
  expect("v = [2, 3, 5, 3]: has another shape than k");
  EXPECT_NE(refusal().find(path_), std::string::npos);
}

TEST_F(KvTensorsTest, NamesTheFirstNumberThatIsNotFinite) {
  for (const float wrong : {static_cast<float>(NAN), static_cast<float>(INFINITY)}) {
    write_safetensors(ElementType::float32, "F32");
    std::fstream file(path_, std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(-4, std::ios::end);  // the last of k
    file.write(reinterpret_cast<const char*>(&wrong), 4);
    file.close();
    const KvTensors tensors(path_);
    std::vector<float> numbers(to_size(2 * kHeads * kHeadSize));
    EXPECT_EQ(input_error_of([&] {
                tensors.read(Stream::k, 1, {0, 3}, numbers.data());
              }),
              "nothing was refused");
    const std::string refusal = input_error_of([&] { tensors.read(Stream::k, 1, {3, 4}, numbers.data()); });
    EXPECT_NE(refusal.find("k[1, 2, 4, 3] = "), std::string::npos) << refusal;
    EXPECT_NE(refusal.find("is not a finite number"), std::string::npos) << refusal;
  }
}

}  // namespace
}  // namespace headspan
