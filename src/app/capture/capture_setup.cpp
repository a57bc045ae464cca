#include "app/capture/capture_setup.h"

#include <algorithm>
#include <numeric>

#include "base/checked.h"

namespace headspan {

CaptureSetup::CaptureSetup(const Transformer& model_, const CaptureRequest& request_,
                           const ProcessLayout& processes_, bool heldout_)
    : model(&model_),
      request(&request_),
      processes(&processes_),
      grams_per_stream(request_.by_layer ? model_.config().layers : 1),
      spec{{}, {}, request_.precision, heldout_},
      passes(request_.passes) {
  HS_ASSERT(request->pairs.empty() || !request->by_layer);
  const Transformer* const reference = request->reference;
  HS_ASSERT(reference == nullptr || !request->by_layer);
  for (const Stream stream : request->streams)
    layouts.push_back(reference != nullptr ? reference_layout(model->config(), reference->config(), stream)
                                           : stream_layout(model->config(), stream));
  for (const StreamPair& pair : request->pairs) layouts.push_back(pair_layout(model->config(), pair));
  for (const HeadLayout& layout : layouts) {
    const std::int64_t heads = layout.heads() / grams_per_stream;
    spec.columns.insert(spec.columns.end(), to_size(grams_per_stream), heads * layout.head_size);
    spec.blocks.insert(spec.blocks.end(), to_size(grams_per_stream),
                       gram_block(processes->grid().shape(), heads, layout.head_size));
  }
  if (!request->sums_reference) {
    spec.summed = spec.columns;
    for (std::size_t s = 0; s < request->streams.size(); ++s)
      spec.summed[s] = layouts[s].second * layouts[s].head_size;
  }
  if (!passes.empty()) return;
  DeviceShare& everything = passes.emplace_back();
  everything.streams.resize(layouts.size());
  std::iota(everything.streams.begin(), everything.streams.end(), std::size_t{0});
  everything.parts = spec.heldout ? std::vector{Part::fit, Part::heldout} : std::vector{Part::fit};
}

std::vector<Stream> CaptureSetup::streams(const DeviceShare& pass, bool queries) const {
  std::vector<Stream> needed;
  for (const auto& [word, stream] : stream_words())
    if ((queries && stream == Stream::q) || !places(pass, 0, stream).empty()) needed.push_back(stream);
  return needed;
}

std::vector<CaptureSetup::Place> CaptureSetup::places(const DeviceShare& pass, std::int64_t layer,
                                                      Stream stream) const {
  const std::size_t own = request->streams.size();
  const std::int64_t head = request->by_layer ? 0 : layer * model->config().heads_of(stream);
  std::vector<Place> found;
  for (const std::size_t s : pass.streams) {
    const std::int64_t d = layouts[s].head_size;
    if (s < own) {
      if (request->streams[s] == stream) found.push_back({gram(s, layer), head * d, d});
      continue;
    }
    const StreamPair& pair = request->pairs[s - own];
    if (pair.source == stream) found.push_back({s, head * d, d});
    if (pair.target == stream) found.push_back({s, (layouts[s].second + head) * d, d});
  }
  return found;
}

std::vector<Stream> CaptureSetup::reference_streams(const DeviceShare& pass) const {
  std::vector<Stream> needed;
  for (const std::size_t s : pass.streams)
    if (s < request->streams.size()) needed.push_back(request->streams[s]);
  return needed;
}

CaptureSetup::Place CaptureSetup::reference_place(std::int64_t layer, Stream stream) const {
  const auto found = std::find(request->streams.begin(), request->streams.end(), stream);
  HS_ASSERT(found != request->streams.end());
  const auto s = to_size(found - request->streams.begin());
  const std::int64_t head = layouts[s].second + layer * request->reference->config().heads_of(stream);
  return {s, head * layouts[s].head_size, layouts[s].head_size};
}

std::size_t CaptureSetup::gram(std::size_t s, std::int64_t layer) const {
  return request->by_layer ? s * to_size(grams_per_stream) + to_size(layer) : s;
}

Range CaptureSetup::share_of_rank(std::size_t count) const {
  return range_of(static_cast<std::int64_t>(count), processes->tensor().size(), processes->tensor().rank());
}

HeadLayout stream_layout(const ModelConfig& config, Stream stream) {
  const std::int64_t heads = config.heads_of(stream);
  HeadLayout layout{config.head_size, {}, {}, config.hidden_size};
  for (std::int64_t l = 0; l < config.layers; ++l)
    for (std::int64_t h = 0; h < heads; ++h) {
      layout.layer.push_back(l);
      layout.head.push_back(h);
    }
  return layout;
}

HeadLayout pair_layout(const ModelConfig& config, const StreamPair& pair) {
  // What a layer gathers depends on all that it projects, so that only later layers can be predicted from it.
  const std::int64_t delay = pair.source == Stream::z ? 1 : 0;
  return cross_layout(stream_layout(config, pair.source), stream_layout(config, pair.target), delay);
}

HeadLayout reference_layout(const ModelConfig& config, const ModelConfig& reference, Stream stream) {
  HeadLayout layout = cross_layout(stream_layout(config, stream), stream_layout(reference, stream), 0);
  layout.hidden_size = 0;
  return layout;
}

}  // namespace headspan
