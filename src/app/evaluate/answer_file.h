// The answers of an evaluation as they arrive. Until all are there they are kept in PATH.part, from which a
// later run resumes: a first line that identifies the job, then for each answer the number of its request, a
// space, and the answer's line.
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
  /// Resumes PATH.part if it is of this job, else starts anew. Logs how many answers it has, or that it is of
  /// another job. `identity` is equal for runs that would give the same answers. If `path` is empty, nothing
  /// is written. Keeps a reference to comm, whose rank 0 reads and writes. Collective over comm.
  AnswerFile(const Comm& comm, std::string path, const std::string& identity, std::size_t requests,
             const Log& log);
  ~AnswerFile();  ///< Removes a PATH.part without answers.
  AnswerFile(const AnswerFile&) = delete;
  AnswerFile& operator=(const AnswerFile&) = delete;

  /// Returns whether the request has an answer. The same on every rank.
  bool has(std::size_t request) const { return done_[request] != 0; }

  /// Returns whether answers were added to PATH.part. The same on every rank.
  bool has_new_answers() const { return has_new_answers_; }

  /// Adds this rank's answers to these requests, one line each. Collective.
  void add(const std::vector<std::size_t>& requests, const std::vector<std::string>& lines);

  /// Publishes all answers at PATH, in the order of the requests, and removes PATH.part. Collective.
  void publish();

 private:
  std::string part() const { return path_ + ".part"; }
  void read(const std::string& identity, const Log& log);
  void store(const std::string& numbered_line);

  const Comm& comm_;
  std::string path_;
  bool has_new_answers_ = false;
  std::vector<char> done_;          // [requests], on every rank
  std::vector<std::string> lines_;  // [requests], on rank 0
  std::optional<OutputFile> file_;  // PATH.part, on rank 0
};

}  // namespace headspan
