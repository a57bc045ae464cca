// The index of a sharded checkpoint, model.safetensors.index.json: which file of the same folder holds which
// tensor. Only what it says; whether the shards agree is for Checkpoint.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace headspan {

struct ShardIndex {
  std::map<std::string, std::string> weight_map;  // tensor -> file name, without any folder
  std::optional<std::uint64_t> total_size;        // bytes of all tensors, where the index has it
};

/// Throws InputError naming `path` when it is no JSON object with a `weight_map` of texts, holds a key twice,
/// nests as deep as json_text.h refuses, is above 100 MB, or when a shard is anything but a plain file name.
ShardIndex read_shard_index(const std::string& path);

}  // namespace headspan
