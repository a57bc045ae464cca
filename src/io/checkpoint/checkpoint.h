// A folder as Hugging Face lays it out: config.json, and the weights as model.safetensors or as
// model.safetensors.index.json with the shards that it names; a snapshots/<commit> folder of the Hugging Face
// cache is one. Nothing is fetched: what is missing is an error. A checkpoint gives out raw bytes; what the
// tensors of a model should be called and look like is for src/model.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "io/checkpoint/safetensors.h"

namespace headspan {

class Checkpoint {
 public:
  /// Opens every file of weights and checks its header, and the index against the shards. Where both are
  /// there, model.safetensors is used and not the index, as transformers does. Throws InputError naming the
  /// file, and the shard and tensor where there is one.
  static Checkpoint open(const std::string& folder);

  const std::string& folder() const { return folder_; }
  std::string config_path() const { return folder_ + "/config.json"; }

  bool has(const std::string& name) const { return shard_of_.count(name) > 0; }

  /// The tensor's dtype and shape. Throws InputError when there is none of this name.
  const TensorEntry& entry(const std::string& name) const;

  /// The file that holds the tensor, for messages about its values. Throws as `entry` does.
  const std::string& file_of(const std::string& name) const;

  /// Reads `bytes` bytes of the tensor from its byte `offset` on; the caller keeps the range within the
  /// tensor. Safe from several threads. Throws as `entry` does, and Error when the file cannot be read.
  void read(const std::string& name, std::int64_t offset, std::int64_t bytes, void* out) const;

  /// The files of weights.
  std::vector<std::string> files() const;

  /// All tensors, sorted by name.
  std::vector<std::string> names() const;

  /// Bytes of tensors given out by `read` so far.
  std::int64_t bytes_read() const;

  /// What is odd but does no harm, one line each: the caller logs it.
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  explicit Checkpoint(const std::string& folder) : folder_(folder) {}
  void open_single(const std::string& path);
  void open_sharded(const std::string& index_path);
  void warn_of_unused_tensors();
  const SafetensorsFile& shard(const std::string& name) const;

  std::string folder_;
  std::vector<SafetensorsFile> shards_;
  std::map<std::string, std::size_t> shard_of_;  // tensor -> position in shards_
  std::vector<std::string> warnings_;
};

/// The path of the config.json of the checkpoint in `folder`. Throws InputError that says how to get it where
/// there is none; the weights may be missing.
std::string config_of(const std::string& folder);

}  // namespace headspan
