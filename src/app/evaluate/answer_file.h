// The answers of an evaluation as they come. Until all are there they stand in PATH.part, from which a run
// goes on where one before it was cut short: a first line that names the job, then for each answer the number
// of its request, a space, and its line.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/output_file.h"
#include "dist/comm/mpi.h"

namespace headspan {

class AnswerFile {
 public:
  /// `job`: equal for runs that would answer the same; a part of another job is begun anew, and told. No
  /// `path`: nothing is kept. Keeps a reference to comm, whose rank 0 reads and writes. Collective over it.
  AnswerFile(const Comm& comm, std::string path, const std::string& job, std::size_t requests,
             const Log& log);
  ~AnswerFile();  ///< removes a part without an answer
  AnswerFile(const AnswerFile&) = delete;
  AnswerFile& operator=(const AnswerFile&) = delete;

  /// Whether the request was answered before or since. On every rank alike.
  bool has(std::size_t request) const { return done_[request] != 0; }

  /// Whether the next run goes on from more answers than this one did. On every rank alike.
  bool kept_since() const { return kept_since_; }

  /// The lines of these requests, from each rank its own. Collective.
  void add(const std::vector<std::size_t>& requests, const std::vector<std::string>& lines);

  /// Puts all answers in the order of the requests at PATH and removes the part. Collective.
  void publish();

 private:
  std::string part() const { return path_ + ".part"; }
  void read(const std::string& job, const Log& log);
  void take(const std::string& numbered_line);

  const Comm& comm_;
  std::string path_;
  bool kept_since_ = false;
  std::vector<char> done_;          // [requests], on every rank
  std::vector<std::string> lines_;  // on rank 0
  std::optional<OutputFile> file_;  // likewise: the part
};

}  // namespace headspan
