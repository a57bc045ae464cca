#include "safetensors_samples.h"

#include <cstdint>

namespace headspan {
namespace {

std::string length_bytes(std::uint64_t length) {
  std::string bytes(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) bytes[i] = static_cast<char>(length >> (8 * i) & 0xFF);
  return bytes;
}

std::string tensor(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return "{\"dtype\":\"" + dtype + "\",\"shape\":" + shape + ",\"data_offsets\":" + offsets + "}";
}

/// Returns a file with a single tensor "a".
std::string single(const std::string& dtype, const std::string& shape, const std::string& offsets,
                   std::size_t data_bytes) {
  return safetensors_file("{\"a\":" + tensor(dtype, shape, offsets) + "}", data_bytes);
}

/// Returns a file with the tensors "a" and "b", both I8.
std::string pair(const std::string& shape_a, const std::string& offsets_a, const std::string& shape_b,
                 const std::string& offsets_b, std::size_t data_bytes) {
  return safetensors_file(
      "{\"a\":" + tensor("I8", shape_a, offsets_a) + ",\"b\":" + tensor("I8", shape_b, offsets_b) + "}",
      data_bytes);
}

/// Returns a file with an F32 tensor of 4 bytes that `object` describes.
std::string written(const std::string& object) { return safetensors_file("{\"a\":" + object + "}", 4); }

std::string on_the_same_range(int count) {
  std::string header = "{";
  for (int i = 0; i < count; ++i)
    header += (i > 0 ? ",\"t" : "\"t") + std::to_string(i) + "\":" + tensor("F32", "[2,2]", "[0,16]");
  return safetensors_file(header + "}", 16);
}

std::string nul(const std::string& before, const std::string& after) { return before + '\0' + after; }

const std::string kGood = tensor("F32", "[1]", "[0,4]");
const std::string kDeep = std::string(100000, '[') + std::string(100000, ']');
const std::string kDeepObjects = [] {
  std::string text;
  for (int i = 0; i < 1000; ++i) text += "{\"x\":";
  return text + "1" + std::string(1000, '}');
}();

using Samples = std::vector<SafetensorsSample>;

Samples lengths() {
  return {
      {"empty file", "", "file size = 0"},
      {"seven bytes", std::string(7, '\0'), "file size = 7"},
      {"length 0", length_bytes(0), "does not begin with '{'"},
      {"length 2^64 - 1", length_bytes(~0ULL), "above 100000000"},
      {"length 2^63", length_bytes(1ULL << 63) + "{}", "above 100000000"},
      {"length 100000001", length_bytes(100'000'001) + "{}", "above 100000000"},
      {"length 100000000 of 10 bytes", length_bytes(100'000'000) + "{}", "reaches beyond the end"},
      {"length one beyond the file", length_bytes(3) + "{}", "reaches beyond the end"},
      {"length ends within the header", length_bytes(1) + "{}", "not valid JSON"},
      {"big-endian length", std::string("\0\0\0\0\0\0\0\2{}", 10), "above 100000000"},
      {"no tensor", safetensors_file("{}", 0), nullptr},
      {"no tensor, but data", safetensors_file("{}", 4), "4 bytes behind the last tensor"},
  };
}

Samples json() {
  return {
      {"byte 0xff", safetensors_file("\xFF", 0), "does not begin with '{'"},
      {"byte order mark", safetensors_file("\xEF\xBB\xBF{}", 0), "does not begin with '{'"},
      {"only a brace", safetensors_file("{", 0), "not valid JSON"},
      {"a list", safetensors_file("[]", 0), "does not begin with '{'"},
      {"null", safetensors_file("null", 0), "does not begin with '{'"},
      {"blank", safetensors_file("   ", 0), "does not begin with '{'"},
      {"space in front", safetensors_file(" \t\r\n{}", 0), nullptr},
      {"space behind", safetensors_file("{} \t\r\n", 0), nullptr},
      {"NUL behind", safetensors_file(nul("{}", ""), 0), "NUL byte"},
      {"text behind a NUL", safetensors_file(nul("{}", "{}"), 0), "NUL byte"},
      {"form feed behind", safetensors_file("{}\f", 0), "not valid JSON"},
      {"two objects", safetensors_file("{}{}", 0), "not valid JSON"},
      {"a comment", safetensors_file("{/* */}", 0), "not valid JSON"},
      {"a comma too many", safetensors_file("{\"a\":" + kGood + ",}", 4), "not valid JSON"},
      {"single quotes", safetensors_file("{'a':" + kGood + "}", 4), "not valid JSON"},
      {"name not UTF-8", safetensors_file("{\"\xFF\":" + kGood + "}", 4), "ill-formed UTF-8"},
      {"name overlong UTF-8", safetensors_file("{\"\xC0\xAF\":" + kGood + "}", 4), "ill-formed UTF-8"},
      {"name with half a surrogate", safetensors_file("{\"\\ud800\":" + kGood + "}", 4), "not valid JSON"},
      {"name with a line break", safetensors_file("{\"\n\":" + kGood + "}", 4), "not valid JSON"},
      {"deep lists", safetensors_file("{\"a\":" + kDeep + "}", 4), "wrong kind"},
      {"deep objects", safetensors_file("{\"a\":" + kDeepObjects + "}", 4), "no field of a tensor"},
      {"deep shape", single("F32", kDeep, "[0,4]", 4), "wrong kind"},
  };
}

Samples names_and_metadata() {
  return {
      {"empty name", safetensors_file("{\"\":" + kGood + "}", 4), nullptr},
      {"name like a path", safetensors_file("{\"../a\":" + kGood + "}", 4), nullptr},
      {"name with an escaped NUL", safetensors_file("{\"a\\u0000\":" + kGood + "}", 4), nullptr},
      {"name of 100 kB", safetensors_file("{\"" + std::string(100000, 'n') + "\":" + kGood + "}", 4),
       nullptr},
      {"same name twice", safetensors_file("{\"a\":" + kGood + ",\"a\":" + kGood + "}", 4),
       "tensor 'a': is given twice"},
      {"same name, escaped", safetensors_file("{\"a\":" + kGood + ",\"\\u0061\":" + kGood + "}", 4),
       "given twice"},
      {"empty metadata", safetensors_file("{\"__metadata__\":{}}", 0), nullptr},
      {"metadata", safetensors_file("{\"__metadata__\":{\"format\":\"pt\"},\"a\":" + kGood + "}", 4),
       nullptr},
      {"metadata null", safetensors_file("{\"__metadata__\":null}", 0),
       "__metadata__ = null: is of the wrong kind"},
      {"metadata a list", safetensors_file("{\"__metadata__\":[]}", 0), "an object of texts"},
      {"metadata with a number", safetensors_file("{\"__metadata__\":{\"a\":1}}", 0), "a text is expected"},
      {"metadata with an object", safetensors_file("{\"__metadata__\":{\"a\":{}}}", 0), "a text is expected"},
      {"metadata twice", safetensors_file("{\"__metadata__\":{},\"__metadata__\":{}}", 0),
       "__metadata__: is given twice"},
      {"metadata key twice", safetensors_file("{\"__metadata__\":{\"x\":\"\",\"x\":\"\"}}", 0),
       "given twice"},
  };
}

Samples fields() {
  return {
      {"tensor a number", written("1"), "an object of dtype, shape and data_offsets"},
      {"tensor a list", written("[\"F32\",[1],[0,4]]"), "tensor 'a' = a list: is of the wrong kind"},
      {"no field", written("{}"), "has no dtype"},
      {"no dtype", written("{\"shape\":[1],\"data_offsets\":[0,4]}"), "has no dtype"},
      {"no shape", written("{\"dtype\":\"F32\",\"data_offsets\":[0,4]}"), "has no shape"},
      {"no data_offsets", written("{\"dtype\":\"F32\",\"shape\":[1]}"), "has no data_offsets"},
      {"another field", written("{\"x\":1," + kGood.substr(1)), "tensor 'a' x: is no field of a tensor"},
      {"dtype twice", written("{\"dtype\":\"F32\"," + kGood.substr(1)), "tensor 'a' dtype: is given twice"},
      {"shape twice", written("{\"shape\":[1]," + kGood.substr(1)), "tensor 'a' shape: is given twice"},
      {"data_offsets twice", written("{\"data_offsets\":[0,4]," + kGood.substr(1)),
       "data_offsets: is given twice"},
      {"fields in another order", written("{\"data_offsets\":[0,4],\"shape\":[1],\"dtype\":\"F32\"}"),
       nullptr},
      {"dtype unknown", single("F31", "[1]", "[0,4]", 4), "dtype = F31: is not a dtype"},
      {"dtype in small letters", single("f32", "[1]", "[0,4]", 4), "dtype = f32: is not a dtype"},
      {"dtype a number", written("{\"dtype\":32,\"shape\":[1],\"data_offsets\":[0,4]}"),
       "a text is expected"},
      {"dtype an object", written("{\"dtype\":{\"F32\":null},\"shape\":[1],\"data_offsets\":[0,4]}"),
       "a text is exp"},
      {"dtype null", written("{\"dtype\":null,\"shape\":[1],\"data_offsets\":[0,4]}"), "a text is expected"},
  };
}

Samples shapes() {
  return {
      {"scalar", single("F32", "[]", "[0,4]", 4), nullptr},
      {"empty tensor", single("F32", "[2,0]", "[0,0]", 0), nullptr},
      {"F64", single("F64", "[2,3]", "[0,48]", 48), nullptr},
      {"BF16", single("BF16", "[2,3]", "[0,12]", 12), nullptr},
      {"C64", single("C64", "[3]", "[0,24]", 24), nullptr},
      {"F4 in whole bytes", single("F4", "[2]", "[0,1]", 1), nullptr},
      {"F6 in whole bytes", single("F6_E2M3", "[4]", "[0,3]", 3), nullptr},
      {"F4 in half a byte", single("F4", "[1]", "[0,1]", 1), "does not fill whole bytes"},
      {"F6 in part of a byte", single("F6_E3M2", "[2]", "[0,2]", 2), "does not fill whole bytes"},
      {"shape a number", single("F32", "1", "[0,4]", 4), "a list of non-negative integers"},
      {"shape a text", single("F32", "\"[1]\"", "[0,4]", 4), "a list of non-negative integers"},
      {"dimension negative", single("F32", "[-1]", "[0,4]", 4), "shape = -1: is of the wrong kind"},
      {"dimension minus zero", single("F32", "[-0]", "[0,0]", 0), "is of the wrong kind"},
      {"dimension a decimal", single("F32", "[1.0]", "[0,4]", 4), "shape = 1.0: is of the wrong kind"},
      {"dimension with exponent", single("F32", "[1e0]", "[0,4]", 4), "is of the wrong kind"},
      {"dimension a text", single("F32", "[\"1\"]", "[0,4]", 4), "is of the wrong kind"},
      {"dimension a list", single("F32", "[[1]]", "[0,4]", 4), "is of the wrong kind"},
      {"dimension null", single("F32", "[null]", "[0,4]", 4), "is of the wrong kind"},
      {"dimension true", single("F32", "[true]", "[0,4]", 4), "is of the wrong kind"},
      {"dimension with leading zero", single("F32", "[01]", "[0,4]", 4), "not valid JSON"},
      {"dimension 2^64", single("F32", "[18446744073709551616]", "[0,4]", 4), "is of the wrong kind"},
      {"dimension beyond every number", single("F32", "[1e999]", "[0,4]", 4), "not valid JSON"},
      {"2 times 2^64 - 2", single("F32", "[2,18446744073709551614]", "[0,16]", 16), "overflows 64 bits"},
      {"2 times 2^63 - 1 in bits", single("F32", "[2,9223372036854775807]", "[0,16]", 16),
       "overflows 64 bits"},
      {"overflow before a zero", single("F32", "[9223372036854775808,4,0]", "[0,0]", 0), "overflows 64 bits"},
      {"dimension 2^63 - 1 beside a zero", single("F32", "[9223372036854775807,0]", "[0,0]", 0), nullptr},
      {"dimension 2^63 beside a zero", single("F32", "[9223372036854775808,0]", "[0,0]", 0),
       "above 2^63 - 1"},
  };
}

Samples offsets() {
  const char* huge = "[9223372036854775744]";  // 0x7FFFFFFFFFFFFFC0
  return {
      {"offsets a number", single("F32", "[1]", "4", 4), "a list of non-negative integers"},
      {"one offset", single("F32", "[1]", "[0]", 4), "are not two numbers"},
      {"three offsets", single("F32", "[1]", "[0,4,4]", 4), "are not two numbers"},
      {"offset negative", single("F32", "[1]", "[-4,0]", 4), "data_offsets = -4: is of the wrong kind"},
      {"offset a decimal", single("F32", "[1]", "[0,4.0]", 4), "is of the wrong kind"},
      {"end before begin", single("F32", "[1]", "[4,0]", 4), "end before they begin"},
      {"range too short", single("F32", "[2]", "[0,4]", 4), "span 4 bytes where F32 [2] needs 8"},
      {"range too long", single("F32", "[1]", "[0,8]", 8), "span 8 bytes where F32 [1] needs 4"},
      {"range for another dtype", single("F16", "[2]", "[0,8]", 8), "span 8 bytes where F16 [2] needs 4"},
      {"two bytes missing", single("F32", "[2,2]", "[0,16]", 14),
       "reach beyond the data, which has 14 bytes"},
      {"extra bytes behind", single("F32", "[2,2]", "[0,16]", 20), "4 bytes behind the last tensor"},
      {"end at 2^64 - 1", single("F32", "[1]", "[18446744073709551611,18446744073709551615]", 4),
       "reach beyond the data"},
      {"data begins late", single("F32", "[1]", "[4,8]", 8), "leave a hole behind byte 0"},
      {"two in a row", pair("[3]", "[0,3]", "[2]", "[3,5]", 5), nullptr},
      {"two in another order", pair("[3]", "[2,5]", "[2]", "[0,2]", 5), nullptr},
      {"hole between two", pair("[3]", "[0,3]", "[2]", "[4,6]", 6),
       "tensor 'b' data_offsets = [4, 6]: leave a hole"},
      {"overlap by one byte", pair("[3]", "[0,3]", "[2]", "[2,4]", 4),
       "tensor 'b' data_offsets = [2, 4]: overlap"},
      {"one within another", pair("[4]", "[0,4]", "[2]", "[1,3]", 4), "overlap"},
      {"ten on the same range", on_the_same_range(10), "overlap"},
      {"empty between two", pair("[0]", "[0,0]", "[2]", "[0,2]", 2), nullptr},
      {"empty at the end", pair("[2]", "[0,2]", "[0]", "[2,2]", 2), nullptr},
      {"empty within another", pair("[2]", "[0,2]", "[0]", "[1,1]", 2), "overlap"},
      {"empty beyond the end", pair("[2]", "[0,2]", "[0]", "[3,3]", 2), "reach beyond the data"},
      {"sum of sizes overflows",
       pair(huge, "[0,9223372036854775744]", huge, "[9223372036854775744,18446744073709551488]", 0),
       "overflows 64 bits"},
  };
}

}  // namespace

std::string safetensors_file(const std::string& header, std::size_t data_bytes) {
  return length_bytes(header.size()) + header + std::string(data_bytes, 'x');
}

std::vector<SafetensorsSample> safetensors_samples() {
  Samples all;
  for (const auto& part : {lengths(), json(), names_and_metadata(), fields(), shapes(), offsets()})
    all.insert(all.end(), part.begin(), part.end());
  return all;
}

}  // namespace headspan
