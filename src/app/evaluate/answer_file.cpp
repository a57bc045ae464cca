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

AnswerFile::AnswerFile(const Comm& comm, std::string path, const std::string& job, std::size_t requests,
                       const Log& log)
    : comm_(comm), path_(std::move(path)), done_(requests, 0) {
  agree(comm_, [&] {
    if (!comm_.is_root()) return;
    lines_.resize(requests);
    if (!path_.empty()) read(job, log);
  });
  comm_.broadcast(done_.data(), static_cast<std::int64_t>(done_.size()), 0);
  const auto there = std::count(done_.begin(), done_.end(), 1);
  if (there > 0)
    log.notice(part() + " has " + std::to_string(there) + " of " + std::to_string(requests) +
               " answers: goes on from them");
}

AnswerFile::~AnswerFile() {
  if (!file_ || std::count(done_.begin(), done_.end(), 1) > 0) return;
  std::error_code ignored;
  std::filesystem::remove(part(), ignored);
}

void AnswerFile::read(const std::string& job, const Log& log) {
  namespace fs = std::filesystem;
  make_folder(folder_of(path_));
  std::istringstream old(fs::exists(part()) ? read_whole_file(part()) : "");
  std::string line, kept = job + "\n";
  const bool begun = static_cast<bool>(std::getline(old, line));
  if (begun && line != job)
    log.notice(part() + " is of another job, or of other contents of its files: begins anew");
  if (begun && line == job)
    while (std::getline(old, line) && !old.eof()) take(line);  // eof: the last line was cut short
  for (std::size_t request = 0; request < lines_.size(); ++request)
    if (has(request)) kept += std::to_string(request) + " " + lines_[request];
  const std::string fresh = part() + ".tmp";  // a run that is killed here leaves the old part
  file_.emplace(fresh);
  file_->append(kept);
  fs::rename(fresh, part());
}

void AnswerFile::take(const std::string& numbered_line) {
  std::istringstream text(numbered_line);
  std::size_t request = 0;
  if (!(text >> request) || request >= lines_.size() || text.get() != ' ') return;
  std::string line;
  std::getline(text, line);
  lines_[request] = line + "\n";
  done_[request] = 1;
}

void AnswerFile::add(const std::vector<std::size_t>& requests, const std::vector<std::string>& lines) {
  std::vector<std::vector<char>> send(static_cast<std::size_t>(comm_.size()));
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const std::string numbered = std::to_string(requests[i]) + " " + lines[i];
    send[0].insert(send[0].end(), numbered.begin(), numbered.end());
  }
  const auto received = comm_.exchange(send);
  agree(comm_, [&] {
    if (!comm_.is_root()) return;
    for (const auto& own : received) {
      const std::string text(own.begin(), own.end());
      std::istringstream numbered(text);
      for (std::string line; std::getline(numbered, line);) take(line);
      if (file_) file_->append(text);
    }
  });
  comm_.broadcast(done_.data(), static_cast<std::int64_t>(done_.size()), 0);
  kept_since_ = !path_.empty();
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
