// The .idx of a Megatron-LM dataset: the integer type of its .bin, and where documents begin there. Its
// arrays follow a header of odd size, unaligned: i32 lengths[sequences], i64 pointers[sequences] (byte
// offsets into the .bin), i64 documents[documents] (the first sequence of each document, and at the end the
// number of sequences). Megatron's "sequences" are what its writer was given, not the sequences into which
// headspan cuts documents (io/inputs/sequences.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/input_file.h"

namespace headspan {

class MegatronIndex {
 public:
  /// Opens the index and checks its header, its sizes and both ends of every array. Throws InputError.
  explicit MegatronIndex(const std::string& path);

  const std::string& path() const { return file_.path(); }

  /// The type of an id in the .bin: "uint16", "int32", ...
  const std::string& dtype() const { return dtype_; }

  /// The size that the .bin must have, in bytes.
  std::int64_t data_bytes() const { return data_bytes_; }

  /// Returns where each document that is not empty ends: the position, in ids, one past its last id;
  /// ascending, up to the first at or beyond `limit`. Throws InputError if the sequences are not contiguous.
  std::vector<std::int64_t> document_ends(std::int64_t limit) const;

 private:
  template <class T>
  std::vector<T> read(std::int64_t array_begin, std::int64_t start, std::int64_t count) const;
  /// Returns where the sequences [first, last) begin, in ids, and where the last one ends, given that the
  /// first begins at `position`.
  std::vector<std::int64_t> sequence_starts(std::int64_t first, std::int64_t last,
                                            std::int64_t position) const;
  [[noreturn]] void refuse(const std::string& wrong) const;

  InputFile file_;
  std::string dtype_;
  std::int64_t id_bytes_ = 0;
  std::int64_t sequences_ = 0;
  std::int64_t documents_ = 0;
  std::int64_t lengths_begin_ = 0;
  std::int64_t pointers_begin_ = 0;
  std::int64_t documents_begin_ = 0;
  std::int64_t data_bytes_ = 0;
};

}  // namespace headspan
