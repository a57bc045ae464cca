#include "app/capture/capture_setup.h"

#include <algorithm>

#include "base/checked.h"

namespace headspan {
std::size_t CaptureSetup::place(Stream stream) const {
  return to_size(std::find(request->streams.begin(), request->streams.end(), stream) -
                 request->streams.begin());
}

bool CaptureSetup::sums(const DeviceShare& pass, Stream stream) const {
  return std::find(pass.streams.begin(), pass.streams.end(), place(stream)) != pass.streams.end();
}

std::vector<Stream> CaptureSetup::streams(const DeviceShare& pass, bool queries) const {
  std::vector<Stream> all;
  for (const std::size_t place : pass.streams) all.push_back(request->streams[place]);
  if (queries && !sums(pass, Stream::q)) all.push_back(Stream::q);
  return all;
}

std::size_t CaptureSetup::gram(std::size_t place, std::int64_t layer) const {
  return request->by_layer ? place * to_size(pieces) + to_size(layer) : place;
}

std::int64_t CaptureSetup::first_column(std::size_t place, std::int64_t layer) const {
  if (request->by_layer) return 0;
  return layer * model->heads(request->streams[place]).count * layouts[place].head_size *
         team->tensor().size();
}

Range CaptureSetup::own_share(std::size_t kept) const {
  return range_of(static_cast<std::int64_t>(kept), team->tensor().size(), team->tensor().rank());
}

DeviceShare everything(std::size_t streams, bool heldout) {
  DeviceShare pass{{}, {Part::fit}, {}};
  for (std::size_t s = 0; s < streams; ++s) pass.streams.push_back(s);
  if (heldout) pass.parts.push_back(Part::heldout);
  return pass;
}

HeadLayout stream_layout(const ModelConfig& config, Stream stream) {
  const std::int64_t heads = stream == Stream::q ? config.heads : config.kv_heads;
  HeadLayout layout{config.head_size, {}, {}, config.hidden_size};
  for (std::int64_t l = 0; l < config.layers; ++l)
    for (std::int64_t h = 0; h < heads; ++h) {
      layout.layer.push_back(l);
      layout.head.push_back(h);
    }
  return layout;
}

}  // namespace headspan
