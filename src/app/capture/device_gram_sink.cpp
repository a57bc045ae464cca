#include "app/capture/device_gram_sink.h"

#include "base/range.h"
#include "device/device_collector.h"
#include "device/device_values.h"
#include "device/token_rows.h"

namespace headspan {
namespace {

template <class T>
class DeviceGramSink : public GramSink<T> {
 public:
  explicit DeviceGramSink(const CaptureSetup& setup)
      : setup_(setup),
        device_(*setup.request->device),
        collector_(setup.team->grid(), setup.team->group_device(),
                   {setup.columns, setup.blocks, setup.request->precision, setup.heldout}, device_,
                   setup.model->dtype()) {
    for (auto& rows : rows_) rows.resize(setup.columns.size());
  }

  void run(const PackedBatch& batch, const Kept& kept, const QuerySink<T>& queries,
           const MeanSquareSink& mean_squares) override {
    for (const Part part : share_.parts) {
      const auto p = static_cast<std::size_t>(part);
      const Range mine = setup_.own_share(kept[p].size());
      for (const std::size_t gram : share_.streams)
        rows_[p][gram] = collector_.add_rows(gram, part, mine.count);
      positions_[p] = row_numbers(kept[p], device_);
    }
    if (batch.tokens.empty()) return;
    setup_.model->capture_tensors(
        batch, setup_.request->point, setup_.streams(pass(), static_cast<bool>(queries)),
        [&](std::int64_t layer, Stream stream, const at::Tensor& values) {
          if (setup_.sums(pass(), stream)) take(layer, stream, values);
          if (queries && stream == Stream::q)
            on_host<T>(values, [&](const T* host) { queries(layer, host); });
        },
        mean_squares);
  }

  void begin(std::size_t pass) override {
    pass_ = pass;
    share_ = {{}, setup_.passes[pass].parts, setup_.passes[pass].slice};
    for (const std::size_t place : setup_.passes[pass].streams)
      for (std::int64_t piece = 0; piece < setup_.pieces; ++piece)
        share_.streams.push_back(setup_.gram(place, piece));
    collector_.start_share(share_);
  }

  void wait() const override { wait_for(device_); }

  /// Through a collector on the host: what is saved is the same wherever the Grams grow.
  PiecesDone resume(const UnitState& state, std::int64_t pieces) override {
    bool saved = false;
    PiecesDone there = state.resume<T>(
        [&]() -> Collector<T>& {
          saved = true;
          return collector_.copy_to_host();
        },
        pieces);
    begin(there.pass);
    if (saved) collector_.upload();
    return there;
  }
  void keep(const UnitState& state, const PiecesDone& pieces) override {
    state.keep<T>([&]() -> Collector<T>& { return collector_.copy_to_host(); }, pieces);
  }

  /// Parts that a pass does not sum have no tokens in it.
  void end_round(Part part, std::int64_t tokens) override {
    if (tokens > 0) collector_.end_round(part, tokens);
  }
  std::map<std::size_t, ResidentGrams> release_resident() override { return collector_.release_resident(); }
  std::vector<StreamGrams> finish() override { return collector_.finish(); }

 private:
  const DeviceShare& pass() const { return setup_.passes[pass_]; }

  /// values: [tokens, heads of this rank, head_size] of one layer.
  void take(std::int64_t layer, Stream stream, const at::Tensor& values) {
    const std::size_t s = setup_.place(stream), gram = setup_.gram(s, layer);
    for (const Part part : share_.parts) {
      const auto p = static_cast<std::size_t>(part);
      copy_tokens(setup_.team->tensor_device(), values, positions_[p], setup_.first_column(s, layer),
                  rows_[p][gram]);
    }
  }

  CaptureSetup setup_;
  at::Device device_;
  DeviceCollector<T> collector_;
  std::size_t pass_ = 0;
  DeviceShare share_;                            // of the pass: Grams in place of streams
  std::array<std::vector<at::Tensor>, 2> rows_;  // by part and Gram: where this batch's rows go
  std::array<at::Tensor, 2> positions_;          // of this batch, by part
};

}  // namespace

template <class T>
std::unique_ptr<GramSink<T>> rows_on_device(const CaptureSetup& setup) {
  return std::make_unique<DeviceGramSink<T>>(setup);
}

template std::unique_ptr<GramSink<double>> rows_on_device(const CaptureSetup&);
template std::unique_ptr<GramSink<float>> rows_on_device(const CaptureSetup&);

}  // namespace headspan
