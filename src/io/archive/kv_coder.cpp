#include "io/archive/kv_coder.h"

#include <algorithm>

#include "base/checked.h"

namespace headspan {

KvCoder::KvCoder(KvCodec codec) : codec_(std::move(codec)), levels_(codec_.models) {
  for (const auto& [name, stream] : cached_stream_words())
    for (const CodecGroup& group : codec_.streams.at(stream))
      groups_.push_back({stream, &group, GroupCoder(codec_, group, levels_)});
}

std::vector<RotaryTable> KvCoder::tables_at(const std::vector<std::int64_t>& positions) const {
  std::vector<RotaryTable> tables;
  for (const RotaryRule& rule : codec_.rotary) tables.emplace_back(rule, positions);
  return tables;
}

const RotaryTable* KvCoder::table_of(Stream stream, std::int64_t layer,
                                     const std::vector<RotaryTable>& tables) const {
  const std::int64_t rule = codec_.rotary_of_layer[to_size(layer)];
  return stream == Stream::k && rule >= 0 ? &tables[to_size(rule)] : nullptr;
}

std::vector<std::vector<std::uint8_t>> KvCoder::encode(const std::vector<std::int64_t>& tokens,
                                                       const std::vector<std::int64_t>& positions, int step,
                                                       const ReadLayer& read) const {
  const auto count = static_cast<std::int64_t>(tokens.size());
  const std::int64_t d = codec_.head_size, of_layer = codec_.kv_heads * d;
  const std::vector<RotaryTable> tables = tables_at(positions);
  std::vector<std::vector<std::uint8_t>> blocks;
  for (const Group& group : groups_) {
    const std::int64_t columns = codec_.columns(*group.group);
    std::vector<float> x(to_size(count * columns)), values(to_size(count * of_layer));
    for (std::int64_t l = 0; l < group.group->layers; ++l) {
      const std::int64_t layer = group.group->first_layer + l;
      read(group.stream, layer, tokens, values.data());
      if (const RotaryTable* table = table_of(group.stream, layer, tables))
        for (std::int64_t head = 0; head < codec_.kv_heads; ++head)
          table->unrotate(&values[to_size(head * d)], of_layer);
      for (std::int64_t t = 0; t < count; ++t)
        std::copy_n(&values[to_size(t * of_layer)], of_layer, &x[to_size(t * columns + l * of_layer)]);
    }
    blocks.push_back(group.coder.encode(x.data(), count, step));
  }
  return blocks;
}

bool KvCoder::has_layers(std::int64_t block, const Range& layers) const {
  const CodecGroup& group = *groups_[to_size(block)].group;
  return group.first_layer < layers.first + layers.count && layers.first < group.first_layer + group.layers;
}

void KvCoder::decode(std::int64_t block, const std::vector<std::uint8_t>& bytes,
                     const std::vector<std::int64_t>& tokens, const std::vector<std::int64_t>& positions,
                     int step, const Range& layers, const TakeLayer& take) const {
  const Group& group = groups_[to_size(block)];
  const auto count = static_cast<std::int64_t>(tokens.size());
  const std::int64_t d = codec_.head_size, of_layer = codec_.kv_heads * d,
                     columns = codec_.columns(*group.group);
  std::vector<float> x(to_size(count * columns)), values(to_size(count * of_layer));
  const std::vector<RotaryTable> tables = tables_at(positions);
  group.coder.decode(bytes.data(), static_cast<std::int64_t>(bytes.size()), count, step, x.data());
  for (std::int64_t l = 0; l < group.group->layers; ++l) {
    const std::int64_t layer = group.group->first_layer + l;
    if (!layers.contains(layer)) continue;
    for (std::int64_t t = 0; t < count; ++t)
      std::copy_n(&x[to_size(t * columns + l * of_layer)], of_layer, &values[to_size(t * of_layer)]);
    if (const RotaryTable* table = table_of(group.stream, layer, tables))
      for (std::int64_t head = 0; head < codec_.kv_heads; ++head)
        table->rotate(&values[to_size(head * d)], of_layer);
    take(group.stream, layer, tokens, values.data());
  }
}

}  // namespace headspan
