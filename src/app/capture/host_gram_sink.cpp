#include "app/capture/host_gram_sink.h"

#include <algorithm>

#include "base/checked.h"
#include "base/error.h"

namespace headspan {
namespace {

template <class T>
class HostGramSink : public GramSink<T> {
 public:
  explicit HostGramSink(const CaptureSetup& setup)
      : setup_(setup), collector_(setup.processes->grid(), setup.spec) {
    HS_ASSERT(setup.passes.size() == 1);
    for (auto& rows : rows_) rows.resize(setup.spec.columns.size());
  }

  void run(const PackedBatch& batch, const KeptPositions& kept, const QuerySink<T>& queries,
           const MeanSquareSink& mean_squares) override {
    for (std::size_t part = 0; part < setup_.spec.parts(); ++part) {
      const Range share = setup_.share_of_rank(kept[part].size());
      for (std::size_t gram = 0; gram < rows_[part].size(); ++gram)
        rows_[part][gram] = collector_.add_rows(gram, static_cast<Part>(part), share.count);
    }
    if (batch.tokens.empty()) return;
    setup_.model->template capture<T>(
        batch, setup_.request->point, setup_.streams(setup_.passes[0], static_cast<bool>(queries)),
        [&](std::int64_t layer, Stream stream, const T* values) {
          add(kept, layer, stream, values);
          if (queries && stream == Stream::q) queries(layer, values);
        },
        mean_squares);
  }

  void end_round(Part part, std::int64_t tokens) override { collector_.end_round(part, tokens); }
  std::vector<StreamGrams> finish() override { return collector_.finish(); }
  Collector<T>& host_collector() override { return collector_; }
  void start_pass(std::size_t, bool) override {}
  void synchronise() const override {}

 private:
  /// Adds values: [tokens, heads of this rank, head_size] of one layer.
  void add(const KeptPositions& kept, std::int64_t layer, Stream stream, const T* values) {
    const std::int64_t width = setup_.model->heads(stream).count * setup_.model->config().head_size;
    for (const CaptureSetup::Place& place : setup_.places(setup_.passes[0], layer, stream))
      for (std::size_t part = 0; part < setup_.spec.parts(); ++part) {
        const std::int64_t columns = setup_.spec.columns[place.gram];
        T* const out = rows_[part][place.gram] + place.first_column;
        if (setup_.processes->tensor().size() == 1)
          copy_rows(values, width, kept[part], out, columns);
        else
          exchange_heads(values, width, kept[part], out, columns);
      }
  }

  static void copy_rows(const T* values, std::int64_t width, const std::vector<std::int64_t>& positions,
                        T* out, std::int64_t columns) {
#pragma omp parallel for schedule(static)
    for (std::size_t i = 0; i < positions.size(); ++i)
      std::copy_n(values + positions[i] * width, width, out + static_cast<std::int64_t>(i) * columns);
  }

  /// Sends every rank of the row this rank's heads of that rank's tokens, and receives all heads of this
  /// rank's tokens.
  void exchange_heads(const T* values, std::int64_t width, const std::vector<std::int64_t>& positions, T* out,
                      std::int64_t columns) const {
    const Comm& comm = setup_.processes->tensor();
    const auto count = static_cast<std::int64_t>(positions.size());
    std::vector<std::vector<T>> send(to_size(comm.size()));
    for (int r = 0; r < comm.size(); ++r) {
      const Range share = range_of(count, comm.size(), r);
      for (std::int64_t i = share.first; i < share.first + share.count; ++i) {
        const T* row = values + positions[to_size(i)] * width;
        send[to_size(r)].insert(send[to_size(r)].end(), row, row + width);
      }
    }
    const auto received = comm.exchange(send);
    for (int r = 0; r < comm.size(); ++r) {
      const auto tokens = static_cast<std::int64_t>(received[to_size(r)].size()) / width;
      for (std::int64_t i = 0; i < tokens; ++i)
        std::copy_n(received[to_size(r)].data() + i * width, width, out + r * width + i * columns);
    }
  }

  const CaptureSetup& setup_;
  Collector<T> collector_;
  std::array<std::vector<T*>, 2> rows_;  // by part and Gram: where the batch's rows go
};

}  // namespace

template <class T>
std::unique_ptr<GramSink<T>> make_host_sink(const CaptureSetup& setup) {
  return std::make_unique<HostGramSink<T>>(setup);
}

template std::unique_ptr<GramSink<double>> make_host_sink(const CaptureSetup&);
template std::unique_ptr<GramSink<float>> make_host_sink(const CaptureSetup&);

}  // namespace headspan
