#include "app/capture/device_gram_sink.h"

#include "base/checked.h"
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
        device_(setup.model->device()),
        collector_(setup.processes->grid(), setup.processes->group_device(), setup.spec, device_,
                   setup.model->dtype()) {
    for (const HeadLayout& layout : setup.layouts) HS_ASSERT(!layout.sizes);
    for (auto& rows : rows_) rows.resize(setup.spec.columns.size());
  }

  void run(const PackedBatch& batch, const KeptPositions& kept, const QuerySink<T>& queries,
           const MeanSquareSink& mean_squares) override {
    for (const Part part : share_.parts) {
      const auto p = static_cast<std::size_t>(part);
      const Range share = setup_.share_of_rank(kept[p].size());
      for (const std::size_t gram : share_.streams)
        rows_[p][gram] = collector_.add_rows(gram, part, share.count);
      positions_[p] = row_numbers(kept[p], device_);
    }
    if (batch.tokens.empty()) return;
    setup_.model->capture_tensors(
        batch, setup_.request->point, setup_.streams(pass(), static_cast<bool>(queries)),
        [&](std::int64_t layer, Stream stream, const at::Tensor& values) {
          for (const CaptureSetup::Place& place : setup_.places(pass(), layer, stream)) add(place, values);
          if (queries && stream == Stream::q)
            on_host<T>(values, [&](const T* host) { queries(layer, host); });
        },
        mean_squares);
    if (const Transformer* const reference = setup_.request->reference)
      reference->capture_tensors(batch, setup_.request->point, setup_.reference_streams(pass()),
                                 [&](std::int64_t layer, Stream stream, const at::Tensor& values) {
                                   add(setup_.reference_place(layer, stream), values);
                                 });
  }

  /// Copies the Grams to the host: a saved state is the same whether they are summed there or on a GPU.
  Collector<T>& host_collector() override { return collector_.copy_to_host(); }

  void start_pass(std::size_t pass, bool resumed) override {
    pass_ = pass;
    share_ = {{}, setup_.passes[pass].parts, setup_.passes[pass].slice};
    for (const std::size_t s : setup_.passes[pass].streams)
      for (std::int64_t g = 0; g < setup_.grams_per_stream; ++g) share_.streams.push_back(setup_.gram(s, g));
    collector_.start_share(share_);
    if (resumed) collector_.upload();
  }

  void synchronise() const override { wait_for(device_); }

  /// Ends the round of a part. A pass runs no tokens of a part that it does not sum.
  void end_round(Part part, std::int64_t tokens) override {
    if (tokens > 0) collector_.end_round(part, tokens);
  }
  std::map<std::size_t, ResidentGrams> release_resident() override { return collector_.release_resident(); }
  std::vector<StreamGrams> finish() override { return collector_.finish(); }

 private:
  const DeviceShare& pass() const { return setup_.passes[pass_]; }

  /// Adds values: [tokens, heads of this rank, head_size] of one layer of a model.
  void add(const CaptureSetup::Place& place, const at::Tensor& values) {
    for (const Part part : share_.parts) {
      const auto p = static_cast<std::size_t>(part);
      copy_tokens(setup_.processes->tensor_device(), values, positions_[p], place.first_column,
                  rows_[p][place.gram]);
    }
  }

  const CaptureSetup& setup_;
  at::Device device_;
  DeviceCollector<T> collector_;
  std::size_t pass_ = 0;
  DeviceShare share_;                            // of the current pass; `streams` holds indices of Grams
  std::array<std::vector<at::Tensor>, 2> rows_;  // by part and Gram: where the batch's rows go
  std::array<at::Tensor, 2> positions_;          // by part: positions of the kept tokens in the batch
};

}  // namespace

template <class T>
std::unique_ptr<GramSink<T>> make_device_sink(const CaptureSetup& setup) {
  return std::make_unique<DeviceGramSink<T>>(setup);
}

template std::unique_ptr<GramSink<double>> make_device_sink(const CaptureSetup&);
template std::unique_ptr<GramSink<float>> make_device_sink(const CaptureSetup&);

}  // namespace headspan
