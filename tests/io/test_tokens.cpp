// NPY files are written by numpy, the other formats byte by byte. Expected digests come from sha256sum of
// coreutils.
#include <cstdlib>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "io/inputs/tokens.h"
#include "io/token_samples.h"
#include "support/input_error.h"
#include "support/temp_folder.h"

namespace headspan {
namespace {

using Ids = std::vector<std::int64_t>;

/// Saves an expression of a = [5, 0, 100, 7] with numpy; returns the path.
std::string save_npy(const TempFolder& folder, const std::string& expression) {
  const std::string path = folder.path("t.npy");
  const std::string command =
      "/usr/bin/python3 -c \"import numpy as np; a = np.array([5, 0, 100, 7]); np.save('" + path + "', " +
      expression + ")\"";
  EXPECT_EQ(std::system(command.c_str()), 0) << command;
  return path;
}

std::string refusal(const std::string& path, std::optional<TokenFormat> format = {},
                    std::optional<RawIdType> dtype = {}, std::optional<std::int64_t> vocab_size = {}) {
  return input_error_of([&] { TokenFile::open(path, format, dtype, vocab_size); });
}

TEST(TokenFile, ReadsRangesOfRawIds) {
  const TempFolder folder("tokens");
  const TokenFile narrow = TokenFile::open(folder.write("a.bin", raw_ids<std::uint16_t>({1, 2, 65535, 4})));
  const TokenFile wide = TokenFile::open(folder.write("b.npy", raw_ids<std::uint32_t>({7, 4000000000})),
                                         TokenFormat::raw, RawIdType::uint32);

  EXPECT_EQ(narrow.format(), TokenFormat::raw);
  EXPECT_EQ(narrow.type().name, "uint16");
  EXPECT_EQ(narrow.count(), 4);
  EXPECT_EQ(narrow.read(0, 4), (Ids{1, 2, 65535, 4}));
  EXPECT_EQ(narrow.read(2, 1), (Ids{65535}));
  EXPECT_EQ(narrow.read(4, 0), Ids{});
  EXPECT_EQ(wide.read(0, 2), (Ids{7, 4000000000}));
}

/// Returns 40 000 ids 0, 7, 14, .. below `end`, repeated: a stand-in for a text.
Ids many_ids(std::int64_t end) {
  Ids ids(40000);
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int64_t>(7 * i) % end;
  return ids;
}

TEST(TokenFile, TakesTheTypeThatTheVocabularyNeeds) {
  const TempFolder folder("tokens");
  const Ids small = many_ids(49152), large = many_ids(100278);
  const std::string narrow = folder.write("a.bin", raw_ids<std::uint16_t>(small)),
                    wide = folder.write("b.bin", raw_ids<std::uint32_t>(large));

  EXPECT_EQ(TokenFile::open(narrow).read(0, 40000), small);
  EXPECT_EQ(TokenFile::open(narrow, {}, {}, 49152).read(0, 40000), small);
  EXPECT_EQ(TokenFile::open(narrow, {}, {}, 65536).type().name, "uint16");
  EXPECT_EQ(TokenFile::open(wide, {}, {}, 100278).read(0, 40000), large);
  folder.write("b.json", R"({"vocab_size": 100278})");
  EXPECT_EQ(TokenFile::open(wide).read(0, 40000), large);
}

TEST(TokenFile, RefusesRawIdsThatCouldBeOfTheOtherType) {
  const TempFolder folder("tokens");
  const std::string narrow = folder.write("a.bin", raw_ids<std::uint16_t>(many_ids(49152))),
                    wide = folder.write("b.bin", raw_ids<std::uint32_t>(many_ids(49152))),
                    larger = folder.write("c.bin", raw_ids<std::uint32_t>(many_ids(262144))),
                    odd = folder.write("d.bin", raw_ids<std::uint16_t>({1, 2, 3}));
  const auto expect = [](const std::string& said, const std::string& line) {
    EXPECT_NE(said.find(line), std::string::npos) << said;
  };
  const std::string right =
      "; give tokens.dtype = uint16 or uint32, or write {\"dtype\": \"uint16\"} or "
      "\"uint32\" to " +
      folder.path("");

  expect(refusal(wide, {}, {}, 49152),
         "tokens.dtype = auto: the file reads as uint16 ids and as uint32 ids below 49152 alike" + right +
             "b.json");
  expect(refusal(wide), "as uint32 ids below 262144 alike" + right + "b.json");
  expect(refusal(larger), "as uint32 ids below 262144 alike");
  expect(refusal(narrow, {}, {}, 100278),
         "tokens.dtype = auto: the file does not read as uint32 ids below 100278, the model's vocabulary" +
             right + "a.json");
  expect(refusal(odd, {}, {}, 65537), "does not read as uint32 ids below 65537");

  EXPECT_EQ(TokenFile::open(wide, {}, RawIdType::uint16, 49152).count(), 80000);
  EXPECT_EQ(TokenFile::open(wide, {}, RawIdType::uint32, 49152).count(), 40000);
  folder.write("b.json", R"({"dtype": "uint32"})");
  EXPECT_EQ(TokenFile::open(wide).count(), 40000);
}

TEST(TokenFile, JudgesTheTypeOfRawIdsByMostOfThem) {
  const TempFolder folder("tokens");
  Ids ids = many_ids(49152);
  ids[321] = 4000000000;
  const std::string small = folder.write("a.bin", raw_ids<std::uint32_t>(ids));
  ids = many_ids(100278);
  ids[321] = 4000000000;
  const TokenFile large = TokenFile::open(folder.write("b.bin", raw_ids<std::uint32_t>(ids)), {}, {}, 100278);

  EXPECT_NE(refusal(small, {}, {}, 49152).find("as uint32 ids below 49152 alike"), std::string::npos);
  EXPECT_EQ(large.type().name, "uint32");
  EXPECT_EQ(large.read(321, 1), Ids{4000000000});
}

TEST(TokenFile, RefusesRawIdsOfEightBytesThatNobodyNames) {
  const TempFolder folder("tokens");
  Ids ids = many_ids(49152);
  ids[321] = -100;
  const std::string path = folder.write("a.bin", raw_ids<std::int64_t>(ids));
  const std::string line =
      "tokens.dtype = auto: the file reads as ids of 8 bytes; write them as uint32, "
      "ids.astype(numpy.uint32).tofile(FILE), or write {\"dtype\": \"int64\"} to " +
      folder.path("a.json");

  for (const std::int64_t vocabulary : {49152, 100278})
    EXPECT_NE(refusal(path, {}, {}, vocabulary).find(line), std::string::npos) << vocabulary;
  EXPECT_NE(refusal(path).find(line), std::string::npos);
  EXPECT_EQ(TokenFile::open(path, {}, RawIdType::uint32).count(), 80000);
  folder.write("a.json", R"({"dtype": "int64"})");
  EXPECT_EQ(TokenFile::open(path, {}, {}, 49152).read(0, 40000), ids);
}

TEST(TokenFile, ReadsMoreThanOneChunk) {
  const TempFolder folder("tokens");
  Ids ids((1 << 20) + 3);
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int64_t>(i % 65521);

  const TokenFile file = TokenFile::open(folder.write("a.bin", raw_ids<std::uint16_t>(ids)));

  EXPECT_EQ(file.read(0, file.count()), ids);
}

TEST(TokenFile, ReadsTrueNpyOfEveryIntegerType) {
  const TempFolder folder("tokens");
  for (const char* dtype : {"uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"}) {
    const TokenFile file = TokenFile::open(save_npy(folder, std::string("a.astype('") + dtype + "')"));

    EXPECT_EQ(file.format(), TokenFormat::npy);
    EXPECT_EQ(file.type().name, dtype);
    EXPECT_EQ(file.count(), 4);
    EXPECT_EQ(file.read(1, 3), (Ids{0, 100, 7}));
  }
}

TEST(TokenFile, RefusesNpyOfOtherKinds) {
  const TempFolder folder("tokens");
  EXPECT_NE(
      refusal(save_npy(folder, "a.astype('f4')")).find("descr = <f4: is not a little-endian integer type"),
      std::string::npos);
  EXPECT_NE(refusal(save_npy(folder, "a.astype('>i4')")).find("descr = >i4"), std::string::npos);
  EXPECT_NE(refusal(save_npy(folder, "a.reshape(2, 2)")).find("shape = (2, 2): is not one axis"),
            std::string::npos);
  EXPECT_NE(refusal(save_npy(folder, "a[:0]")).find("holds no tokens"), std::string::npos);
  EXPECT_NE(refusal(save_npy(folder, "a"), TokenFormat::raw).find("tokens.format = raw: "),
            std::string::npos);
  EXPECT_NE(refusal(save_npy(folder, "a"), {}, RawIdType::uint16)
                .find("tokens.dtype = uint16: the file's own header says int64"),
            std::string::npos);
}

TEST(TokenFile, RefusesABrokenNpy) {
  const TempFolder folder("tokens");
  std::string header("\x93NUMPY\x01\x00\x40\x00", 10);
  header += std::string("{'descr': '<u2', 'fortran_order': False, 'shape': (3,), }");
  header.resize(74, ' ');
  const std::string data = raw_ids<std::uint16_t>({1, 2, 3});

  EXPECT_EQ(TokenFile::open(folder.write("good.npy", header + data)).read(0, 3), (Ids{1, 2, 3}));
  EXPECT_NE(refusal(folder.write("short.npy", header + data.substr(0, 4))).find("the file holds 2 ids"),
            std::string::npos);
  EXPECT_NE(refusal(folder.write("cut.npy", header.substr(0, 40))).find("broken NPY header"),
            std::string::npos);
  EXPECT_NE(refusal(folder.write("tiny.npy", header.substr(0, 8))).find("broken NPY header"),
            std::string::npos);
  EXPECT_NE(refusal(folder.write("raw.npy", data), TokenFormat::npy).find("tokens.format = npy: "),
            std::string::npos);
}

TEST(TokenFile, ReadsMegatronByTheIndexBeside) {
  const TempFolder folder("tokens");
  folder.write("m.idx", megatron_index({4, {2, 1, 0, 3}, {0, 8, 12, 12}, {0, 2, 3, 4}}));
  const TokenFile file = TokenFile::open(folder.write("m.bin", raw_ids<std::int32_t>({9, 8, 7, 6, 5, 4})));

  EXPECT_EQ(file.format(), TokenFormat::megatron);
  EXPECT_EQ(file.type().name, "int32");
  EXPECT_EQ(file.read(0, 6), (Ids{9, 8, 7, 6, 5, 4}));
  EXPECT_EQ(file.document_ends(6), (Ids{3, 6}));
  EXPECT_EQ(file.document_ends(3), (Ids{3}));
}

TEST(TokenFile, ReadsMegatronOfManyDocumentsAndOfEachType) {
  const TempFolder folder("tokens");
  const std::vector<std::pair<int, std::int64_t>> codes = {{1, 1}, {2, 1}, {3, 2}, {4, 4}, {5, 8}, {8, 2}};
  for (const auto& [code, bytes] : codes) {
    MegatronSample sample{static_cast<std::uint8_t>(code), {}, {}, {0}};
    Ids ends;
    for (std::int64_t i = 0; i < 40000; ++i) {
      sample.lengths.push_back(2);
      sample.pointers.push_back(2 * i * bytes);
      sample.documents.push_back(i + 1);
      ends.push_back(2 * (i + 1));
    }
    folder.write("m.idx", megatron_index(sample));

    const TokenFile file =
        TokenFile::open(folder.write("m.bin", std::string(static_cast<std::size_t>(80000 * bytes), '\1')));

    EXPECT_EQ(file.document_ends(80000), ends);
    EXPECT_EQ(file.document_ends(40001).back(), 40002);
  }
}

TEST(TokenFile, RefusesABrokenMegatronIndex) {
  const TempFolder folder("tokens");
  const std::string path = folder.write("m.bin", raw_ids<std::uint16_t>({1, 2, 3, 4}));
  const MegatronSample good{8, {2, 2}, {0, 4}, {0, 1, 2}};
  const auto refusal_of = [&](const std::string& index) {
    folder.write("m.idx", index);
    return input_error_of([&] { TokenFile::open(path).document_ends(4); });
  };
  const auto expect = [&](MegatronSample sample, const char* wrong) {
    EXPECT_NE(refusal_of(megatron_index(sample)).find(wrong), std::string::npos)
        << wrong << ": " << refusal_of(megatron_index(sample));
  };

  EXPECT_EQ(refusal_of(megatron_index(good)), "nothing was refused");
  expect({7, good.lengths, good.pointers, good.documents}, "m.idx: has data type code 7");
  expect({200, good.lengths, good.pointers, good.documents}, "data type code 200");
  expect({4, good.lengths, good.pointers, good.documents}, "m.bin: has 8 bytes where");
  expect({8, {2, 2}, {0, 4}, {0, 1}}, "documents that do not cover");
  expect({8, {2, 2}, {0, 4}, {0, 5, 1, 2}}, "documents out of order");
  expect({8, {1, 2}, {0, 4}, {0, 1, 2}}, "do not follow each other");
  expect({8, {-2, 2}, {0, 4}, {0, 1, 2}}, "do not follow each other");
  expect({8, {2, -1, 3}, {0, 4, 2}, {0, 1, 2, 3}}, "do not follow each other");
  expect({8, {2, -2}, {0, 4}, {0, 1, 2}}, "negative length");
  expect({8, {}, {}, {0}}, "holds no documents");
  EXPECT_NE(refusal_of(megatron_index(good).substr(0, 60)).find("bytes where its header asks"),
            std::string::npos);
  EXPECT_NE(refusal_of("MMIDIDX").find("too short"), std::string::npos);
  EXPECT_NE(refusal_of(std::string(80, 'x')).find("does not start with"), std::string::npos);
}

TEST(TokenFile, RefusesWhatHoldsNoWholeIds) {
  const TempFolder folder("tokens");
  EXPECT_NE(refusal(folder.write("odd.bin", "abc")).find("its 3 bytes are no whole number of uint16 ids"),
            std::string::npos);
  EXPECT_NE(refusal(folder.write("two.bin", "abcdef"), {}, RawIdType::uint32)
                .find("6 bytes are no whole number of uint32"),
            std::string::npos);
  EXPECT_NE(refusal(folder.write("empty.bin", "")).find("empty.bin: holds no tokens"), std::string::npos);
  EXPECT_NE(refusal(folder.path("none.bin")).find("cannot be opened"), std::string::npos);
  EXPECT_NE(refusal(folder.write("a.json", "{}")).find("stands beside a token file"), std::string::npos);
}

TEST(TokenSidecar, SaysWhatTheFileHolds) {
  const TempFolder folder("tokens");
  folder.write("docs.fit.json",
               R"({"dtype": "uint32", "count": 2, "vocab_size": 100, "eos": [3, 4], "tokenizer": "T",
      "text_bytes": 9, "sha256": "AC16E7D9C5C2C00ACF2214EE4FB5FA5B3EBC34F5ED75E5C5DD6EFE3C0C9D19A9", "more": {}})");

  const TokenFile file = TokenFile::open(folder.write("docs.fit.bin", raw_ids<std::uint32_t>({7, 8})));

  ASSERT_TRUE(file.sidecar().has_value());
  EXPECT_EQ(file.type().name, "uint32");
  EXPECT_EQ(file.count(), 2);
  EXPECT_EQ(file.sidecar()->vocab_size, 100);
  EXPECT_EQ(file.sidecar()->eos, (Ids{3, 4}));
  EXPECT_EQ(file.sidecar()->tokenizer, "T");
  EXPECT_EQ(file.sidecar()->text_bytes, 9);
  EXPECT_EQ(file.sidecar()->sha256.substr(0, 6), "ac16e7");
}

TEST(TokenSidecar, MayNameOneEosOrNothing) {
  const TempFolder folder("tokens");
  folder.write("a.json", R"({"eos": 3})");
  folder.write("b.json", R"({"eos": null})");

  EXPECT_EQ(TokenFile::open(folder.write("a.bin", "ab")).sidecar()->eos, Ids{3});
  EXPECT_EQ(TokenFile::open(folder.write("b.bin", "ab")).sidecar()->eos, Ids{});
  EXPECT_FALSE(TokenFile::open(folder.write("c.bin", "ab")).sidecar().has_value());
}

TEST(TokenSidecar, MustNotContradictTheFile) {
  const TempFolder folder("tokens");
  const std::string path = folder.write("a.bin", raw_ids<std::uint16_t>({1, 2, 3, 4}));
  const auto expect = [&](const char* sidecar, const char* line) {
    folder.write("a.json", sidecar);
    const std::string said = input_error_of([&] {
      TokenFile::open(path, {}, RawIdType::uint16);
      hash_token_file(path);
    });
    EXPECT_NE(said.find(line), std::string::npos) << said;
  };

  expect(R"({"count": 5})", "a.json: count = 5: ");
  expect(R"({"dtype": "uint32", "count": 2})", "a.json: dtype = uint32: the job says uint16");
  expect(R"({"sha256": "0000000000000000000000000000000000000000000000000000000000000000"})",
         "a.json: sha256 = 0000");
  expect(R"({"vocab_size": 3, "eos": 3})", "a.json: eos = 3: is not an id of a vocabulary of 3");
}

TEST(TokenSidecar, IsRefusedWhenBroken) {
  const TempFolder folder("tokens");
  const std::string path = folder.write("a.bin", "abcd");
  const auto expect = [&](const char* sidecar, const char* line) {
    folder.write("a.json", sidecar);
    EXPECT_NE(refusal(path).find(line), std::string::npos) << refusal(path);
  };

  expect("{", "a.json: is not valid JSON");
  expect("[1]", "a.json: is not a JSON object");
  expect(R"({"count": "5"})", "count = \"5\": is not an integer");
  expect(R"({"count": 2.5})", "count = 2.5: is not an integer");
  expect(R"({"vocab_size": 0})", "vocab_size = 0: is not an integer of at least 1");
  expect(R"({"count": 18446744073709551615})", "is not an integer");
  expect(R"({"eos": [1, -1]})", "eos = -1: is not an integer of at least 0");
  expect(R"({"dtype": 16})", "dtype = 16: is not a text");
  expect(R"({"dtype": "float32"})", "a.json: dtype = float32: is not an integer type");
  expect(R"({"sha256": "abc"})", "sha256 = abc: is not a SHA-256");
}

TEST(TokenFile, TellsItsSha256) {
  const TempFolder folder("tokens");

  EXPECT_EQ(hash_token_file(folder.write("a.bin", "abcd")),
            "88d4266fd4e6338d13b845fcf289579d209c897823b9217da3e161936f031589");
}

}  // namespace
}  // namespace headspan
