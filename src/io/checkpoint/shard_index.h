// The index of a sharded checkpoint, model.safetensors.index.json: which file of the same folder holds which
// tensor. Checkpoint checks whether the shards agree with it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace headspan {

struct ShardIndex {
  std::map<std::string, std::string> weight_map;  // tensor -> file name, without a folder
  std::optional<std::uint64_t> total_size;        // bytes of all tensors, if the index says it
};

/// Reads an index. Throws InputError naming `path` if it is not a JSON object with a `weight_map` of texts,
/// holds a key twice, nests deeper than parse_json allows or is above 100 MB, or if a shard is not a plain
/// file name.
ShardIndex read_shard_index(const std::string& path);

}  // namespace headspan
