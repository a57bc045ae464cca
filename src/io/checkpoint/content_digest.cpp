#include "io/checkpoint/content_digest.h"

#include <algorithm>

#include <sys/stat.h>

#include "base/checked.h"
#include "base/input_file.h"
#include "base/sha256.h"

namespace headspan {
namespace {

constexpr std::int64_t kTensorSample = 8 << 10;  // bytes
constexpr std::int64_t kMaxWholeFile = 16 << 20;
constexpr std::int64_t kBlock = 4 << 10;
constexpr std::int64_t kBlocks = 1024;

void add(Sha256& digest, const std::string& text) {
  digest.update(text.data(), static_cast<std::int64_t>(text.size()));
}

void add(Sha256& digest, const InputFile& file, std::int64_t offset, std::int64_t bytes) {
  std::string block(to_size(bytes), '\0');
  file.read(offset, bytes, block.data());
  add(digest, block);
}

}  // namespace

std::string weights_digest(const Checkpoint& checkpoint) {
  Sha256 digest;
  for (const std::string& name : checkpoint.names()) {
    const TensorEntry& tensor = checkpoint.entry(name);
    std::string header = name + '\0' + tensor.dtype;
    for (const std::int64_t extent : tensor.shape) header += " " + std::to_string(extent);
    add(digest, header + '\0');
    const std::int64_t bytes = std::min(kTensorSample, tensor.bytes());
    std::string sample(to_size(bytes), '\0');
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
    if (file.size() <= kMaxWholeFile) {
      add(digest, file, 0, file.size());
      continue;
    }
    const std::int64_t step = (file.size() - kBlock) / (kBlocks - 1);
    for (std::int64_t i = 0; i + 1 < kBlocks; ++i) add(digest, file, i * step, kBlock);
    add(digest, file, file.size() - kBlock, kBlock);
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
