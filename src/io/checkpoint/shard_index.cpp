#include "io/checkpoint/shard_index.h"

#include <set>
#include <vector>

#include "base/error.h"
#include "base/input_file.h"
#include "base/printable.h"
#include "io/json_text.h"

namespace headspan {
namespace {

using Json = nlohmann::json;

/// Parses the index. Throws InputError if a key is given twice in one object.
Json parse(const std::string& path, const std::string& text) {
  std::vector<std::set<std::string>> open_keys;  // keys of every open object
  const auto check = [&](int, Json::parse_event_t event, Json& value) {
    if (event == Json::parse_event_t::object_start) open_keys.emplace_back();
    if (event == Json::parse_event_t::object_end) open_keys.pop_back();
    if (event == Json::parse_event_t::key && !open_keys.back().insert(value.get<std::string>()).second)
      throw InputError(path, printable(value.get<std::string>()), "", "is given twice",
                       "write the index again");
    return true;
  };
  return parse_json(path, text, "is it an index of shards?", check);
}

bool is_plain_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos &&
         name.find('\\') == std::string::npos && name.find('\0') == std::string::npos;
}

}  // namespace

ShardIndex read_shard_index(const std::string& path) {
  const Json document = parse(path, read_small_file(path));
  const auto weight_map = document.is_object() ? document.find("weight_map") : document.end();
  if (weight_map == document.end() || !weight_map->is_object() || weight_map->empty())
    throw InputError(path, "weight_map", "", "is missing, empty or no object",
                     "an object that gives every tensor its file is expected");
  ShardIndex index;
  for (const auto& [tensor, file] : weight_map->items()) {
    if (!file.is_string() || !is_plain_name(file.get_ref<const std::string&>()))
      throw InputError(path, "weight_map '" + printable(tensor) + "'", printable(file.dump()),
                       "is not a file name in this folder",
                       "a name such as model-00001-of-00002.safetensors is expected");
    index.weight_map[tensor] = file;
  }
  const Json metadata = document.value("metadata", Json());
  if (metadata.contains("total_size") && metadata["total_size"].is_number_unsigned())
    index.total_size = metadata["total_size"].get<std::uint64_t>();
  return index;
}

}  // namespace headspan
