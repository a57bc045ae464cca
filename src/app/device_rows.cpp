#include "app/captured_rows.h"
#include "device/device_collector.h"
#include "device/token_rows.h"

namespace headspan {
namespace {

template <class T>
class DeviceRows : public CapturedRows<T> {
 public:
  explicit DeviceRows(const CaptureSetup& setup)
      : setup_(setup),
        device_(*setup.request->device),
        collector_(setup.team->grid(), setup.team->group_device(), setup.columns, setup.blocks,
                   setup.request->precision, setup.heldout, device_, setup.model->dtype()) {
    for (auto& rows : rows_) rows.resize(setup.columns.size());
  }

  void run(const PackedBatch& batch, const Kept& kept, const QuerySink<T>& queries,
           const MeanSquareSink& mean_squares) override {
    for (std::size_t part = 0; part < setup_.parts(); ++part) {
      const Slab mine = setup_.own_share(kept[part].size());
      for (std::size_t gram = 0; gram < rows_[part].size(); ++gram)
        rows_[part][gram] = collector_.add_rows(gram, static_cast<Part>(part), mine.count);
      positions_[part] = row_numbers(kept[part], device_);
    }
    if (batch.tokens.empty()) return;
    setup_.model->capture_tensors(
        batch, setup_.request->point, setup_.streams(static_cast<bool>(queries)),
        [&](std::int64_t layer, Stream stream, const at::Tensor& values) {
          if (setup_.place(stream) < setup_.layouts.size()) take(layer, stream, values);
          if (queries && stream == Stream::q)
            on_host<T>(values, [&](const T* host) { queries(layer, host); });
        },
        mean_squares);
  }

  void end_round(Part part, std::int64_t tokens) override { collector_.end_round(part, tokens); }
  std::vector<StreamGrams> finish() override { return collector_.finish(); }

  /// Through a collector on the host: what is saved is the same wherever the Grams grow.
  std::vector<std::uint8_t> resume(const UnitState& state, std::int64_t pieces) override {
    const auto host = collector_.on_host();
    std::vector<std::uint8_t> done = state.resume(*host, pieces);
    collector_.take(*host);
    return done;
  }
  void keep(const UnitState& state, const std::vector<std::uint8_t>& done) override {
    std::unique_ptr<Collector<T>> host;
    state.keep<T>(
        [&]() -> Collector<T>& {
          host = collector_.on_host();
          return *host;
        },
        done);
  }

 private:
  /// values: [tokens, heads of this rank, head_size] of one layer.
  void take(std::int64_t layer, Stream stream, const at::Tensor& values) {
    const std::size_t s = setup_.place(stream), gram = setup_.gram(s, layer);
    for (std::size_t part = 0; part < setup_.parts(); ++part)
      copy_tokens(setup_.team->tensor_device(), values, positions_[part], setup_.first_column(s, layer),
                  rows_[part][gram]);
  }

  CaptureSetup setup_;
  at::Device device_;
  DeviceCollector<T> collector_;
  std::array<std::vector<at::Tensor>, 2> rows_;  // by part and Gram: where this batch's rows go
  std::array<at::Tensor, 2> positions_;          // of this batch, by part
};

}  // namespace

template <class T>
std::unique_ptr<CapturedRows<T>> rows_on_device(const CaptureSetup& setup) {
  return std::make_unique<DeviceRows<T>>(setup);
}

template std::unique_ptr<CapturedRows<double>> rows_on_device(const CaptureSetup&);
template std::unique_ptr<CapturedRows<float>> rows_on_device(const CaptureSetup&);

}  // namespace headspan
