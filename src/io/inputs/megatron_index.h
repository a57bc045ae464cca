// The .idx of a Megatron-LM dataset: the integer type of its .bin, and where documents begin there. Its
// arrays follow an odd-sized header unaligned: i32 lengths[sequences], i64 pointers[sequences] (bytes into
// the .bin), i64 documents[documents], the first sequence of each document, with the number of sequences at
// the end. Megatron's "sequences" are what its writer was given, not the pieces that headspan cuts
// (io/inputs/sequences.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/input_file.h"

namespace headspan {

class MegatronIndex {
 public:
  /// Checks header, sizes and both ends of every array. Throws InputError.
  explicit MegatronIndex(const std::string& path);

  const std::string& path() const { return file_.path(); }

  /// "uint16", "int32", ...; the type of an id in the .bin.
  const std::string& dtype() const { return dtype_; }

  /// Bytes that the .bin must have.
  std::int64_t data_bytes() const { return data_bytes_; }

  /// The positions, in ids, one past the last id of each document that is not empty, ascending, up to the
  /// first at or beyond `limit`. Throws InputError where the sequences do not follow each other without a
  /// gap.
  std::vector<std::int64_t> document_ends(std::int64_t limit) const;

 private:
  template <class T>
  std::vector<T> read(std::int64_t array_begin, std::int64_t start, std::int64_t count) const;
  /// Where the sequences [first, last) begin, in ids, when the first begins at `position`; and where the last
  /// ends.
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
