// A checkpoint folder in Hugging Face's layout: config.json, and the weights as model.safetensors or as
// model.safetensors.index.json with the shards that it names. A snapshots/<commit> folder of the Hugging Face
// cache has this layout too. Nothing is fetched: what is missing is an error. A Checkpoint returns raw bytes;
// src/model knows the names, shapes and types that a model's tensors must have.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "io/checkpoint/safetensors.h"

namespace headspan {

class Checkpoint {
 public:
  /// Opens every file of weights and checks its header, and the index against the shards. If a folder has
  /// both, model.safetensors is used rather than the index, as in transformers. Throws InputError naming the
  /// file and, where they apply, the shard and the tensor.
  static Checkpoint open(const std::string& folder);

  const std::string& folder() const { return folder_; }

  bool has(const std::string& name) const { return shard_of_.count(name) > 0; }

  /// Returns the tensor's dtype and shape. Throws InputError if there is no tensor of this name.
  const TensorEntry& entry(const std::string& name) const;

  /// Returns the path of the file that holds the tensor, for messages. Throws as `entry` does.
  const std::string& file_of(const std::string& name) const;

  /// Reads `bytes` bytes of the tensor, from its byte `offset` on, into `out`; the range must lie within the
  /// tensor. Thread-safe. Throws as `entry` does, and Error if the file cannot be read.
  void read(const std::string& name, std::int64_t offset, std::int64_t bytes, void* out) const;

  /// Returns the paths of the files of weights.
  std::vector<std::string> files() const;

  /// Returns the names of all tensors, sorted.
  std::vector<std::string> names() const;

  /// Returns how many bytes of tensors `read` has returned so far.
  std::int64_t bytes_read() const;

  /// Oddities that do no harm, one line each, for the caller to log.
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  explicit Checkpoint(const std::string& folder) : folder_(folder) {}
  void open_single(const std::string& path);
  void open_sharded(const std::string& index_path);
  void warn_of_unused_tensors();
  const SafetensorsFile& shard(const std::string& name) const;

  std::string folder_;
  std::vector<SafetensorsFile> shards_;
  std::map<std::string, std::size_t> shard_of_;  // tensor -> index into shards_
  std::vector<std::string> warnings_;
};

/// Returns the path of config.json of the checkpoint in `folder`, whose weights may be missing. Throws an
/// InputError that says how to get the checkpoint if there is no config.json.
std::string config_of(const std::string& folder);

}  // namespace headspan
