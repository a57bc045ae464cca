#include "model/device_cache/device_plan.h"

#include <algorithm>
#include <map>

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include "base/error.h"

namespace headspan {
namespace {

std::vector<DeviceBand> device_bands(const StoredBlock& block, at::Device device) {
  std::vector<DeviceBand> bands;
  std::int64_t first = 0;
  for (const Band& band : block.bands) {
    if (band.columns == 0) continue;
    bands.push_back({first, band.columns, {}});
    if (band.bits != kPlainBits && band.coding == Coding::normal)
      throw InputError("", "run.device", "cuda",
                       "reads no plan of hadamard, whose levels are not evenly spaced", "leave it out");
    if (band.tokens > 1)
      throw InputError("", "run.device", "cuda", "reads no plan of kivi, which quantises tokens in groups",
                       "leave it out");
    if (band.bits != kPlainBits) bands.back().codes.emplace(band, device);
    first += band.columns;
  }
  return bands;
}

bool has_own_columns(const CachedLayer& layer, std::int64_t number, std::int64_t d) {
  if (layer.block.bands.size() != 1 || layer.block.bands[0].bits != kPlainBits || layer.slices.size() != 1)
    return false;
  const StoredSlice& slice = layer.slices[0];
  std::int64_t head = 0;
  for (const HeadDecoder& decoder : slice.decoders) {
    const bool is_next = decoder.heads == std::vector<std::int64_t>{head} && decoder.first == head * d &&
                         decoder.count == d && !decoder.matrix.defined();
    if (!is_next) return false;
    ++head;
  }
  return slice.layer == number && slice.first == 0 && head == layer.kv_heads;
}

/// How the heads of one layer read the stored block of one layer, possibly an earlier one.
struct DenseMap {
  at::Tensor matrix;   // [kv_heads, columns, d], on the host
  at::Tensor is_read;  // [kv_heads, columns], bool
};

DenseMap dense_map(const CachedLayer& layer, std::int64_t from, std::int64_t columns, std::int64_t d,
                   at::ScalarType type) {
  DenseMap map{at::zeros({layer.kv_heads, columns, d}, type),
               at::zeros({layer.kv_heads, columns}, at::kBool)};
  for (const StoredSlice& slice : layer.slices) {
    if (slice.layer != from) continue;
    for (const HeadDecoder& decoder : slice.decoders)
      for (std::size_t i = 0; i < decoder.heads.size(); ++i) {
        const std::int64_t first = slice.first + decoder.first, head = decoder.heads[i];
        map.matrix[head]
            .narrow(0, first, decoder.count)
            .add_(decoder.matrix.defined() ? decoder.matrix[static_cast<std::int64_t>(i)] : at::eye(d, type));
        map.is_read[head].narrow(0, first, decoder.count).fill_(true);
      }
  }
  return map;
}

/// Returns columns first .. first + count of the map, for the range of heads that read some of them.
BandMap part_of(const DenseMap& map, std::int64_t first, std::int64_t count) {
  const at::Tensor heads = map.is_read.narrow(1, first, count).any(1).nonzero().flatten();
  BandMap part;
  part.head = heads[0].item<std::int64_t>();
  part.matrix =
      map.matrix.narrow(1, first, count).narrow(0, part.head, heads[-1].item<std::int64_t>() - part.head + 1);
  part.count = count;
  return part;
}

/// Adds the maps of one stored block to `maps`: for a plain band one map for each run of columns that are
/// read, for a coded band one map of all its columns if any of them is read.
void add_maps(const DenseMap& map, std::int64_t from, const std::vector<DeviceBand>& bands, at::Device device,
              std::vector<BandMap>& maps) {
  const at::Tensor any = map.is_read.any(0);
  const bool* is_read = any.data_ptr<bool>();
  for (std::size_t b = 0; b < bands.size(); ++b) {
    const DeviceBand& band = bands[b];
    const std::int64_t end = band.first + band.columns;
    for (std::int64_t first = band.first, last = 0; first < end; first = last) {
      last = band.codes ? end : first + 1;
      while (last < end && is_read[last] == is_read[first]) ++last;
      if (std::count(is_read + first, is_read + last, true) == 0) continue;
      BandMap part = part_of(map, first, last - first);
      part.layer = from;
      part.band = b;
      part.first = first - band.first;
      part.matrix = part.matrix.to(device).contiguous();
      if (band.codes) {
        part.matrix = band.codes->on_fields(part.matrix);
        part.count = band.codes->fields();
      }
      maps.push_back(part);
    }
  }
}

std::vector<DeviceLayer> device_layers(const std::vector<CachedLayer>& layers, std::int64_t d,
                                       at::ScalarType compute, at::Device device) {
  const auto moved = [&](const at::Tensor& x) { return x.defined() ? x.to(device) : x; };
  std::vector<DeviceLayer> out;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const CachedLayer& layer = layers[i];
    DeviceLayer& on_device = out.emplace_back();
    on_device.kv_heads = layer.kv_heads;
    on_device.block = layer.block;
    on_device.block.mean = moved(layer.block.mean);
    on_device.block.projection = moved(layer.block.projection);
    on_device.block.rotation = moved(layer.block.rotation);
    on_device.bias = moved(layer.bias);
    on_device.attention = layer.attention;
    on_device.bands = device_bands(layer.block, device);
    if (!layer.block.weights.empty())
      on_device.weights = at::tensor(layer.block.weights, at::kDouble).to(device);
    on_device.own_columns = has_own_columns(layer, static_cast<std::int64_t>(i), d);
    if (on_device.own_columns) continue;
    for (std::size_t from = 0; from <= i; ++from) {
      const auto number = static_cast<std::int64_t>(from);
      const bool reads = std::any_of(layer.slices.begin(), layer.slices.end(),
                                     [&](const StoredSlice& slice) { return slice.layer == number; });
      if (!reads) continue;
      const DeviceBand& last = out[from].bands.back();
      add_maps(dense_map(layer, number, last.first + last.columns, d, compute), number, out[from].bands,
               device, on_device.maps);
    }
  }
  return out;
}

}  // namespace

DevicePlan make_device_plan(const CachePlan& plan, at::ScalarType compute, at::Device device) {
  HS_ASSERT(plan.shared == SharedBlocks::replicated);
  const c10::InferenceMode inference;
  DevicePlan out;
  out.keys = device_layers(plan.keys, plan.head_size, compute, device);
  out.values = device_layers(plan.values, plan.head_size, compute, device);
  out.device = device;
  out.head_size = plan.head_size;
  out.exact = plan.exact;
  out.document_ends = plan.document_ends;
  return out;
}

}  // namespace headspan
