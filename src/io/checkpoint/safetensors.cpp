#include "io/checkpoint/safetensors.h"

#include <algorithm>
#include <utility>

#include "base/checked.h"

namespace headspan {

SafetensorsFile::SafetensorsFile(InputFile file, std::int64_t data_start, TensorMap tensors)
    : file_(std::move(file)), data_start_(data_start), tensors_(std::move(tensors)) {}

SafetensorsFile SafetensorsFile::open(const std::string& path) {
  InputFile file(path);
  std::string start(to_size(std::min<std::int64_t>(8, file.size())), '\0');
  file.read(0, static_cast<std::int64_t>(start.size()), start.data());
  const std::int64_t length = safetensors_header_length(path, start, file.size());
  start.resize(to_size(8 + length));
  file.read(8, length, start.data() + 8);
  TensorMap tensors = parse_safetensors_header(path, start, file.size());
  return {std::move(file), 8 + length, std::move(tensors)};
}

void SafetensorsFile::read(const TensorEntry& entry, std::int64_t offset, std::int64_t bytes,
                           void* out) const {
  HS_ASSERT(offset >= 0 && bytes >= 0 && offset <= entry.bytes() && bytes <= entry.bytes() - offset);
  file_.read(data_start_ + entry.begin + offset, bytes, out);
}

}  // namespace headspan
