#include "app/evaluate/answer_file.h"

#include <algorithm>
#include <filesystem>
#include <sstream>
#include <system_error>

#include "base/input_file.h"
#include "dist/comm/agreement.h"
#include "io/outputs/output_folder.h"
#include "io/outputs/publish.h"

namespace headspan {

AnswerFile::AnswerFile(const Comm& comm, std::string path, const std::string& identity, std::size_t requests,
                       const Log& log)
    : comm_(comm), path_(std::move(path)), done_(requests, 0) {
  agree(comm_, [&] {
    if (!comm_.is_root()) return;
    lines_.resize(requests);
    if (!path_.empty()) read(identity, log);
  });
  comm_.broadcast(done_.data(), static_cast<std::int64_t>(done_.size()), 0);
  const auto answered = std::count(done_.begin(), done_.end(), 1);
  if (answered > 0)
    log.notice(part() + " has " + std::to_string(answered) + " of " + std::to_string(requests) +
               " answers: goes on from them");
}

AnswerFile::~AnswerFile() {
  if (!file_ || std::count(done_.begin(), done_.end(), 1) > 0) return;
  std::error_code ignored;
  std::filesystem::remove(part(), ignored);
}

void AnswerFile::read(const std::string& identity, const Log& log) {
  namespace fs = std::filesystem;
  make_folder(folder_of(path_));
  std::istringstream old(fs::exists(part()) ? read_whole_file(part()) : "");
  std::string line, kept = identity + "\n";
  if (std::getline(old, line) && line != identity)
    log.notice(part() + " is of another job, or of other contents of its files: begins anew");
  if (line == identity)
    while (std::getline(old, line) && !old.eof()) store(line);  // eof: the last line is incomplete
  for (std::size_t request = 0; request < lines_.size(); ++request)
    if (has(request)) kept += std::to_string(request) + " " + lines_[request];
  const std::string temporary = part() + ".tmp";  // a run killed here leaves the old PATH.part
  try {
    file_.emplace(temporary);
    file_->append(kept);
    fs::rename(temporary, part());
  } catch (...) {
    std::error_code ignored;
    fs::remove(temporary, ignored);
    throw;
  }
}

void AnswerFile::store(const std::string& numbered_line) {
  std::istringstream text(numbered_line);
  std::size_t request = 0;
  if (!(text >> request) || request >= lines_.size() || text.get() != ' ') return;
  std::string line;
  std::getline(text, line);
  lines_[request] = line + "\n";
  done_[request] = 1;
}

void AnswerFile::add(const std::vector<std::size_t>& requests, const std::vector<std::string>& lines) {
  std::string numbered;
  for (std::size_t i = 0; i < requests.size(); ++i) numbered += std::to_string(requests[i]) + " " + lines[i];
  const auto gathered = comm_.gather(std::vector<char>(numbered.begin(), numbered.end()));
  agree(comm_, [&] {
    if (!comm_.is_root()) return;
    for (const auto& characters : gathered) {
      const std::string text(characters.begin(), characters.end());
      std::istringstream answers(text);
      for (std::string line; std::getline(answers, line);) store(line);
      if (file_) file_->append(text);
    }
  });
  comm_.broadcast(done_.data(), static_cast<std::int64_t>(done_.size()), 0);
  has_new_answers_ = !path_.empty();
}

void AnswerFile::publish() {
  agree(comm_, [&] {
    if (!comm_.is_root() || path_.empty()) return;
    std::string all;
    for (const std::string& line : lines_) all += line;
    publish_text(path_, all);
    file_.reset();
    std::filesystem::remove(part());
  });
}

}  // namespace headspan
