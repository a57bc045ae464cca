#include "io/checkpoint/checkpoint.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <iterator>
#include <utility>

#include "base/error.h"
#include "base/input_file.h"
#include "base/printable.h"
#include "io/checkpoint/shard_index.h"

namespace headspan {
namespace fs = std::filesystem;
namespace {

bool is_partial(const fs::path& path) { return path.extension() == ".incomplete"; }

[[noreturn]] void throw_partial(const std::string& path) {
  throw InputError(path, "", "", "is the rest of an unfinished download",
                   "finish the download, or delete this file if it is left over");
}

constexpr const char* kExpected = "a folder with config.json and model.safetensors is expected";

/// Returns whether a manifest names the repositories from which checkpoints/fetch.py downloads its
/// checkpoints.
bool names_repositories(const fs::path& manifest) {
  std::error_code error;
  if (!fs::is_regular_file(manifest, error)) return false;
  const std::string text = read_small_file(manifest.string());
  return ("\t" + text.substr(0, text.find_first_of("\r\n")) + "\t").find("\trepository\t") !=
         std::string::npos;
}

/// Returns whether a folder that is not there could be the name of a repository, ORG/NAME.
bool is_repository_name(const std::string& folder) {
  const auto slash = folder.find('/');
  const auto is_part = [](const std::string& part) {
    return !part.empty() && part.front() != '.' && std::all_of(part.begin(), part.end(), [](unsigned char c) {
      return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.';
    });
  };
  std::error_code error;
  return slash != std::string::npos && is_part(folder.substr(0, slash)) &&
         is_part(folder.substr(slash + 1)) && !fs::exists(folder.substr(0, slash), error);
}

/// Returns the advice for a folder that lacks something: to run the script fetch.sh beside it, or fetch.py if
/// a manifest beside it names repositories or it could be one itself; else `otherwise`.
std::string how_to_get(const std::string& folder, const std::string& otherwise) {
  const fs::path path = fs::path(folder + "/").parent_path(), script = path.parent_path() / "fetch.sh",
                 manifest = path.parent_path() / "manifest.tsv";
  std::error_code error;
  if (fs::exists(script, error)) return "fetch it: bash " + printable(script.string());
  if (names_repositories(manifest))
    return "fetch it: python3 checkpoints/fetch.py " + printable(manifest.string()) + " " +
           printable(path.filename().string());
  if (is_repository_name(folder))
    return "if it is a repository of the Hugging Face hub, fetch it: python3 checkpoints/fetch.py " +
           printable(folder);
  return otherwise;
}

/// Returns the advice for a folder without weights. It differs if config.json is the only file.
std::string how_to_fill(const std::string& folder) {
  std::error_code error;
  for (const char* name : {"pytorch_model.bin", "pytorch_model.bin.index.json"})
    if (fs::exists(fs::path(folder) / name, error))
      return "convert them: python3 checkpoints/convert.py " + printable(folder);
  const fs::directory_iterator files(folder, error);
  if (error || std::distance(begin(files), end(files)) != 1)
    return "weights are read in the safetensors format only";
  return "download the checkpoint into it, hf download REPOSITORY --local-dir " + printable(folder) +
         ", or study random weights, model.init = random";
}

/// Throws what an error of the system means: a folder that the user may not read is wrong input.
[[noreturn]] void throw_unreadable(const std::string& folder, const std::error_code& error) {
  if (error == std::errc::permission_denied)
    throw InputError(folder, "", "", "cannot be read: " + error.message(), "make the folder readable");
  throw Error(printable(folder) + ": cannot be read: " + error.message());
}

void check_folder(const std::string& folder) {
  std::error_code error;
  const fs::file_status found = fs::status(folder, error);
  if (found.type() == fs::file_type::not_found)
    throw InputError(folder, "", "", "does not exist", how_to_get(folder, kExpected));
  if (found.type() == fs::file_type::none) throw_unreadable(folder, error);
  if (!fs::is_directory(found)) throw InputError(folder, "", "", "is not a folder", kExpected);
  fs::directory_iterator files(folder, error);
  if (error) throw_unreadable(folder, error);
  for (const auto& file : files)
    if (is_partial(file.path())) throw_partial(file.path().string());
  if (fs::exists(fs::path(folder) / "config.json", error)) return;
  const bool is_cache = fs::is_directory(fs::path(folder) / "snapshots", error);
  throw InputError(folder, "", "", "holds no config.json",
                   is_cache ? "give one of the folders in its snapshots/" : how_to_get(folder, kExpected));
}

/// Opens a file of weights. In the Hugging Face cache it is a link whose target may not be downloaded yet.
SafetensorsFile open_weights(const std::string& path) {
  std::error_code error;
  const fs::path target = fs::is_symlink(path, error) ? fs::read_symlink(path, error) : fs::path();
  if (is_partial(target)) throw_partial(path);
  if (!target.empty() && !fs::exists(path, error))
    throw InputError(path, "", "", "links to a file that is missing: " + printable(target.string()),
                     "finish the download of this checkpoint");
  return SafetensorsFile::open(path);
}

}  // namespace

std::string config_of(const std::string& folder) {
  std::string path = folder + "/config.json";
  std::error_code error;
  if (!fs::exists(path, error)) check_folder(folder);
  return path;
}

Checkpoint Checkpoint::open(const std::string& folder) {
  check_folder(folder);
  Checkpoint checkpoint(folder);
  const std::string single = folder + "/model.safetensors", index = folder + "/model.safetensors.index.json";
  std::error_code error;
  if (fs::exists(fs::symlink_status(single, error)))
    checkpoint.open_single(single);
  else if (fs::exists(fs::symlink_status(index, error)))
    checkpoint.open_sharded(index);
  else
    throw InputError(folder, "", "", "holds neither model.safetensors nor model.safetensors.index.json",
                     how_to_get(folder, how_to_fill(folder)));
  return checkpoint;
}

void Checkpoint::open_single(const std::string& path) {
  shards_.push_back(open_weights(path));
  for (const auto& tensor : shards_[0].tensors()) shard_of_[tensor.first] = 0;
}

void Checkpoint::open_sharded(const std::string& index_path) {
  const ShardIndex index = read_shard_index(index_path);
  std::int64_t total_bytes = 0;
  std::map<std::string, std::size_t> shard_index;  // file name -> index into shards_
  for (const auto& [name, file] : index.weight_map) {
    const auto refuse = [&, &name = name, &file = file](const char* wrong, const char* right) {
      throw InputError(index_path, "weight_map '" + printable(name) + "'", printable(file), wrong, right);
    };
    const auto [found, is_new] = shard_index.emplace(file, shards_.size());
    if (is_new) {
      const std::string path = folder_ + "/" + file;
      std::error_code error;
      if (!fs::exists(fs::symlink_status(path, error)))
        refuse("is missing from the folder", "finish the download of this checkpoint");
      shards_.push_back(open_weights(path));
    }
    const TensorMap& tensors = shards_[found->second].tensors();
    const auto entry = tensors.find(name);
    if (entry == tensors.end())
      refuse("does not hold this tensor", "index and shards must be of one checkpoint");
    shard_of_[name] = found->second;
    total_bytes += entry->second.bytes();
  }
  warn_of_unused_tensors();
  if (index.total_size && *index.total_size != static_cast<std::uint64_t>(total_bytes))
    warnings_.push_back(index_path + ": metadata.total_size = " + std::to_string(*index.total_size) +
                        ": the tensors have " + std::to_string(total_bytes) + " bytes");
}

void Checkpoint::warn_of_unused_tensors() {
  for (std::size_t i = 0; i < shards_.size(); ++i)
    for (const auto& tensor : shards_[i].tensors()) {
      const auto mapped = shard_of_.find(tensor.first);
      if (mapped == shard_of_.end() || mapped->second != i)
        warnings_.push_back(shards_[i].path() + ": tensor '" + printable(tensor.first) +
                            "' is not used: the index does not place it here");
    }
}

const SafetensorsFile& Checkpoint::shard(const std::string& name) const {
  const auto found = shard_of_.find(name);
  if (found == shard_of_.end())
    throw InputError(folder_, "tensor '" + printable(name) + "'", "", "is missing from the weights",
                     "do config.json and the weights belong together?");
  return shards_[found->second];
}

const TensorEntry& Checkpoint::entry(const std::string& name) const { return shard(name).tensors().at(name); }

const std::string& Checkpoint::file_of(const std::string& name) const { return shard(name).path(); }

void Checkpoint::read(const std::string& name, std::int64_t offset, std::int64_t bytes, void* out) const {
  const SafetensorsFile& file = shard(name);
  file.read(file.tensors().at(name), offset, bytes, out);
}

std::vector<std::string> Checkpoint::files() const {
  std::vector<std::string> files;
  for (const SafetensorsFile& file : shards_) files.push_back(file.path());
  return files;
}

std::vector<std::string> Checkpoint::names() const {
  std::vector<std::string> names;
  for (const auto& tensor : shard_of_) names.push_back(tensor.first);
  return names;
}

std::int64_t Checkpoint::bytes_read() const {
  std::int64_t bytes = 0;
  for (const SafetensorsFile& file : shards_) bytes += file.bytes_read();
  return bytes;
}

}  // namespace headspan
