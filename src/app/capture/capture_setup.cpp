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
  for (const Stream stream : request->streams) {
    const HeadLayout& layout = layouts.emplace_back(stream_layout(model->config(), stream));
    const std::int64_t heads = layout.heads() / grams_per_stream;
    spec.columns.insert(spec.columns.end(), to_size(grams_per_stream), heads * layout.head_size);
    spec.blocks.insert(spec.blocks.end(), to_size(grams_per_stream),
                       gram_block(processes->grid().shape(), heads, layout.head_size));
  }
  if (!passes.empty()) return;
  DeviceShare& everything = passes.emplace_back();
  everything.streams.resize(request->streams.size());
  std::iota(everything.streams.begin(), everything.streams.end(), std::size_t{0});
  everything.parts = spec.heldout ? std::vector{Part::fit, Part::heldout} : std::vector{Part::fit};
}

std::size_t CaptureSetup::index_of(Stream stream) const {
  return to_size(std::find(request->streams.begin(), request->streams.end(), stream) -
                 request->streams.begin());
}

bool CaptureSetup::sums(const DeviceShare& pass, Stream stream) const {
  return std::find(pass.streams.begin(), pass.streams.end(), index_of(stream)) != pass.streams.end();
}

std::vector<Stream> CaptureSetup::streams(const DeviceShare& pass, bool queries) const {
  std::vector<Stream> all;
  for (const std::size_t s : pass.streams) all.push_back(request->streams[s]);
  if (queries && !sums(pass, Stream::q)) all.push_back(Stream::q);
  return all;
}

std::size_t CaptureSetup::gram(std::size_t s, std::int64_t layer) const {
  return request->by_layer ? s * to_size(grams_per_stream) + to_size(layer) : s;
}

std::int64_t CaptureSetup::first_column(std::size_t s, std::int64_t layer) const {
  if (request->by_layer) return 0;
  return layer * model->heads(request->streams[s]).count * layouts[s].head_size * processes->tensor().size();
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

}  // namespace headspan
