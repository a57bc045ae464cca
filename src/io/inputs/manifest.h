// The checkpoints of a sweep as a table: tab-separated text with a header line, one checkpoint a row. The
// columns name, step, tokens and path are required, in any order; repository, revision, commit, bytes, sha256
// and validation_loss may be there; others are refused, and so are names that cannot be selected or cannot
// name files, and text with control characters or without UTF-8. Whether the checkpoints exist is not looked
// at: most of a sweep may not be fetched yet.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace headspan {

/// One checkpoint. An empty cell of the file leaves its field empty; `name`, `step` and `path` are never
/// empty.
struct ManifestRow {
  std::int64_t number = 0;             // of the row, from 0
  std::string name;                    // names the result file: unique, without '/'
  std::int64_t step = 0;               // of training
  std::optional<std::int64_t> tokens;  // trained on up to this step
  std::string path;                    // folder of the checkpoint, usable as it stands
  std::string repository, revision, commit;
  std::optional<std::int64_t> bytes;
  std::string sha256;
  std::optional<double> validation_loss;
};

/// Reads a manifest. An absolute path is kept. A relative one belongs to the manifest's own folder, so that a
/// manifest can lie beside its checkpoints and be used from anywhere; when there is nothing of that path in
/// that folder but there is from the current directory, it is taken from there, as every other path of a job.
/// Throws InputError with the line number, the column and the value for whatever is wrong.
std::vector<ManifestRow> read_manifest(const std::string& path);

/// The rows that `select` (model.select of a job) asks for, in the order asked for, each once. An item is
/// "all", a row's name, a 0-based index, or a range of indices "3-7" with both ends in it; a name comes
/// before an index that is spelled alike, but not with "row:" before the index. Throws InputError naming
/// model.select and the item that is none of these.
std::vector<ManifestRow> select_rows(const std::vector<ManifestRow>& rows,
                                     const std::vector<std::string>& select);

}  // namespace headspan
