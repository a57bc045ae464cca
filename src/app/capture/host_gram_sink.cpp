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
      clear_gaps(part, share.count);
    }
    if (batch.tokens.empty()) return;
    setup_.model->template capture<T>(
        batch, setup_.request->point, setup_.streams(setup_.passes[0], static_cast<bool>(queries)),
        [&](std::int64_t layer, Stream stream, const T* values) {
          for (const CaptureSetup::Place& place : setup_.places(setup_.passes[0], layer, stream))
            add(*setup_.model, kept, place, stream, values);
          if (queries && stream == Stream::q) queries(layer, values);
        },
        mean_squares);
    if (const Transformer* const reference = setup_.request->reference)
      reference->capture<T>(batch, setup_.request->point, setup_.reference_streams(setup_.passes[0]),
                            [&](std::int64_t layer, Stream stream, const T* values) {
                              add(*reference, kept, setup_.reference_place(layer, stream), stream, values);
                            });
  }

  void end_round(Part part, std::int64_t tokens) override { collector_.end_round(part, tokens); }
  std::vector<StreamGrams> finish() override { return collector_.finish(); }
  Collector<T>& host_collector() override { return collector_; }
  void start_pass(std::size_t, bool) override {}
  void synchronise() const override {}

 private:
  /// The heads of one layer that a rank has of a token, and where they go in a row of a Gram.
  struct Heads {
    std::int64_t count, size;            // of a token's values
    std::int64_t head_columns, columns;  // of a row

    std::int64_t width() const { return count * size; }
    void copy(const T* values, T* row) const {
      if (head_columns == size) {
        std::copy_n(values, width(), row);
        return;
      }
      for (std::int64_t h = 0; h < count; ++h) std::copy_n(values + h * size, size, row + h * head_columns);
    }
  };

  /// Clears the new rows of Grams whose heads differ in size: not all of their columns will be filled.
  void clear_gaps(std::size_t part, std::int64_t tokens) {
    for (std::size_t s = 0; s < setup_.layouts.size(); ++s)
      if (setup_.layouts[s].sizes)
        std::fill_n(rows_[part][s], to_size(tokens * setup_.spec.columns[s]), T{0});
  }

  /// Adds values: [tokens, heads of this rank, head_size] of one layer of a model.
  void add(const Transformer& model, const KeptPositions& kept, const CaptureSetup::Place& place,
           Stream stream, const T* values) {
    const Heads heads{model.heads(stream).count, model.config().head_size, place.head_columns,
                      setup_.spec.columns[place.gram]};
    for (std::size_t part = 0; part < setup_.spec.parts(); ++part) {
      T* const out = rows_[part][place.gram] + place.first_column;
      if (setup_.processes->tensor().size() == 1)
        copy_rows(values, heads, kept[part], out);
      else
        exchange_heads(values, heads, kept[part], out);
    }
  }

  static void copy_rows(const T* values, const Heads& heads, const std::vector<std::int64_t>& positions,
                        T* out) {
#pragma omp parallel for schedule(static)
    for (std::size_t i = 0; i < positions.size(); ++i)
      heads.copy(values + positions[i] * heads.width(), out + static_cast<std::int64_t>(i) * heads.columns);
  }

  /// Sends every rank of the row this rank's heads of that rank's tokens, and receives all heads of this
  /// rank's tokens.
  void exchange_heads(const T* values, const Heads& heads, const std::vector<std::int64_t>& positions,
                      T* out) const {
    const std::int64_t width = heads.width();
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
        heads.copy(received[to_size(r)].data() + i * width,
                   out + r * heads.count * heads.head_columns + i * heads.columns);
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
