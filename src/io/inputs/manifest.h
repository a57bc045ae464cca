// The checkpoints of a sweep as a table: tab-separated text with a header line and one checkpoint per row.
// The columns name, step, tokens and path are required, in any order; repository, revision, commit, bytes,
// sha256, validation_loss and seed are optional; any other column is refused. So are names that model.select
// cannot express or that cannot name a file, and text with control characters or bytes that are not UTF-8.
// Whether the checkpoints exist is not checked: most of a sweep may not have been fetched yet.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace headspan {

/// One checkpoint. An empty cell of the file leaves its field empty; `name`, `step` and `path` are never
/// empty.
struct ManifestRow {
  std::int64_t number = 0;             // index of the row, from 0
  std::string name;                    // names the result file: unique, without '/'
  std::int64_t step = 0;               // training step
  std::optional<std::int64_t> tokens;  // trained on up to this step
  std::string path;                    // folder of the checkpoint, resolved by read_manifest
  std::string repository, revision, commit;
  std::optional<std::int64_t> bytes;
  std::string sha256;
  std::optional<double> validation_loss;
  std::optional<std::int64_t> seed;  // of the training run
};

/// Reads a manifest. A relative `path` is resolved against the manifest's folder, so that a manifest can lie
/// beside its checkpoints and be used from anywhere; if nothing is there but something is in the current
/// directory, that is taken, as for every other path of a job. Throws InputError naming the line, the column
/// and the value.
std::vector<ManifestRow> read_manifest(const std::string& path);

/// Returns the rows that `select` (model.select of a job) names, in its order, each once. An item is "all", a
/// row's name, a 0-based index, or a range of indices "3-7" that includes both ends. A name takes precedence
/// over an index of the same spelling, which "row:" before the index avoids. Throws InputError naming
/// model.select and the item that is none of these.
std::vector<ManifestRow> select_rows(const std::vector<ManifestRow>& rows,
                                     const std::vector<std::string>& select);

}  // namespace headspan
