#include "io/checkpoint/content_digest.h"

#include <algorithm>

#include <sys/stat.h>

#include "base/error.h"
#include "base/input_file.h"
#include "base/sha256.h"

namespace headspan {
namespace {

constexpr std::int64_t kOfTensor = 8 << 10;
constexpr std::int64_t kWhole = 16 << 20;
constexpr std::int64_t kPiece = 4 << 10;
constexpr std::int64_t kPieces = 1024;

void add(Sha256& digest, const std::string& text) {
  digest.update(text.data(), static_cast<std::int64_t>(text.size()));
}

void add(Sha256& digest, const InputFile& file, std::int64_t offset, std::int64_t bytes) {
  std::string piece(static_cast<std::size_t>(bytes), '\0');
  file.read(offset, bytes, piece.data());
  add(digest, piece);
}

}  // namespace

std::string weights_digest(const Checkpoint& checkpoint) {
  Sha256 digest;
  for (const std::string& name : checkpoint.names()) {
    const TensorEntry& tensor = checkpoint.entry(name);
    std::string header = name + '\0' + tensor.dtype;
    for (const std::int64_t extent : tensor.shape) header += " " + std::to_string(extent);
    add(digest, header + '\0');
    const std::int64_t bytes = std::min(kOfTensor, tensor.bytes());
    std::string sample(static_cast<std::size_t>(bytes), '\0');
    checkpoint.read(name, (tensor.bytes() - bytes) / 2, bytes, sample.data());
    add(digest, sample);
  }
  return digest.hex();
}

std::string files_digest(const std::vector<std::string>& paths) {
  Sha256 digest;
  for (const std::string& path : paths) {
    const InputFile file(path);
    add(digest, std::to_string(file.size()) + '\0');
    if (file.size() <= kWhole) {
      add(digest, file, 0, file.size());
      continue;
    }
    const std::int64_t step = (file.size() - kPiece) / (kPieces - 1);
    for (std::int64_t piece = 0; piece + 1 < kPieces; ++piece) add(digest, file, piece * step, kPiece);
    add(digest, file, file.size() - kPiece, kPiece);
  }
  return digest.hex();
}

std::string change_times(const std::vector<std::string>& paths) {
  std::string times;
  for (const std::string& path : paths) {
    struct stat status {};
    if (::stat(path.c_str(), &status) != 0) throw_errno("cannot read the time of change of", path);
    times += (times.empty() ? "" : ",") + std::to_string(status.st_size) + "@" +
             std::to_string(status.st_mtim.tv_sec);
  }
  return times;
}

}  // namespace headspan
