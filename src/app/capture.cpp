#include "app/capture.h"

#include <algorithm>
#include <array>

#include "app/rounds.h"

namespace headspan {
namespace {

std::size_t to_size(std::int64_t n) { return static_cast<std::size_t>(n); }

/// Where the tokens of one batch go: for each part the positions in the batch whose activations count.
using Kept = std::array<std::vector<std::int64_t>, 2>;

Kept kept_positions(const Sample& sample, const std::vector<std::int64_t>& sequences,
                    std::int64_t skip_first) {
  Kept kept;
  std::int64_t position = 0;
  for (const std::int64_t s : sequences) {
    const std::int64_t length = sample.sequences[to_size(s)].length;
    for (std::int64_t i = skip_first; i < length; ++i)
      kept[sample.heldout[to_size(s)]].push_back(position + i);
    position += length;
  }
  return kept;
}

PackedBatch make_batch(const Sample& sample, const std::vector<std::int64_t>& sequences) {
  PackedBatch batch;
  for (const std::int64_t s : sequences) {
    const auto& tokens = sample.tokens[to_size(s)];
    batch.tokens.insert(batch.tokens.end(), tokens.begin(), tokens.end());
    batch.lengths.push_back(static_cast<std::int64_t>(tokens.size()));
  }
  return batch;
}

/// One run of capture_grams.
template <class T>
class Capture {
 public:
  Capture(const Transformer& model, const ModelConfig& config, const Sample& sample,
          const CaptureRequest& request, const Team& team, AttentionSums* attention)
      : model_(model), sample_(sample), request_(request), team_(team), attention_(attention) {
    if (request.by_layer) pieces_ = config.layers;
    for (const Stream stream : request.streams) layouts_.push_back(stream_layout(config, stream));
    for (auto& rows : rows_) rows.resize(layouts_.size() * to_size(pieces_));
  }

  std::vector<StreamGrams> run(Progress& progress, Profile& profile, const UnitState* state) {
    std::vector<std::int64_t> columns, blocks;
    for (const HeadLayout& layout : layouts_) {
      const std::int64_t heads = layout.heads() / pieces_;
      columns.insert(columns.end(), to_size(pieces_), heads * layout.head_size);
      blocks.insert(blocks.end(), to_size(pieces_),
                    gram_block(team_.grid().shape(), heads, layout.head_size));
    }
    Collector<T> collector(team_.grid(), columns, blocks, request_.precision, sample_.has_heldout());
    const std::int64_t rows = team_.group().size() / team_.tensor().size();
    const auto count = static_cast<std::int64_t>(sample_.sequences.size());
    std::vector<std::uint8_t> done(to_size(count), 0);
    if (state != nullptr) done = state->resume(collector, count);
    progress.advance(tokens_of(done));
    for (const Round& round : plan_remaining(sample_.sequences, rows, request_.batch_tokens, done)) {
      {
        const Profile::Phase phase = profile.enter("forward");
        run_batch(collector, round[to_size(team_.group().rank() / team_.tensor().size())]);
      }
      {
        const Profile::Phase phase = profile.enter("gram");
        end_round(collector, round, progress);
      }
      for (const auto& batch : round)
        for (const std::int64_t s : batch) done[to_size(s)] = 1;
      if (state == nullptr) continue;
      const Profile::Phase phase = profile.enter("save");
      state->keep(collector, done);
    }
    const Profile::Phase phase = profile.enter("gram");
    return collector.finish();
  }

 private:
  std::size_t parts() const { return sample_.has_heldout() ? 2 : 1; }

  std::int64_t tokens_of(const std::vector<std::uint8_t>& done) const {
    std::int64_t tokens = 0;
    for (std::size_t s = 0; s < done.size(); ++s) tokens += done[s] != 0 ? sample_.sequences[s].length : 0;
    return tokens;
  }

  /// Runs this row's batch and puts this rank's tokens of it into the collector.
  void run_batch(Collector<T>& collector, const std::vector<std::int64_t>& sequences) {
    const Kept kept = kept_positions(sample_, sequences, request_.skip_first);
    for (std::size_t part = 0; part < parts(); ++part) {
      const auto count = static_cast<std::int64_t>(kept[part].size());
      const Slab mine = slab_of(count, team_.tensor().size(), team_.tensor().rank());
      for (std::size_t gram = 0; gram < rows_[part].size(); ++gram)
        rows_[part][gram] = collector.add_rows(gram, static_cast<Part>(part), mine.count);
    }
    if (sequences.empty()) return;
    std::vector<Stream> streams = request_.streams;
    MeanSquareSink mean_squares;
    if (attention_ != nullptr) {
      if (!is_asked(Stream::q)) streams.push_back(Stream::q);
      mean_squares = [&](std::int64_t layer, const std::vector<double>& values) {
        if (team_.tensor().is_root()) attention_->add_mean_squares(layer, values, kept[0]);
      };
    }
    model_.capture<T>(
        make_batch(sample_, sequences), request_.point, streams,
        [&](std::int64_t layer, Stream stream, const T* values) {
          if (is_asked(stream)) take(kept, layer, stream, values);
          if (attention_ == nullptr || stream != Stream::q) return;
          const Range own = model_.heads(Stream::q);
          attention_->add_queries(layer, own.begin, own.count, values, kept[0]);
        },
        mean_squares);
  }

  bool is_asked(Stream stream) const {
    return std::count(request_.streams.begin(), request_.streams.end(), stream) > 0;
  }

  /// values: [tokens, heads of this rank, head_size] of one layer.
  void take(const Kept& kept, std::int64_t layer, Stream stream, const T* values) {
    const auto s = to_size(std::find(request_.streams.begin(), request_.streams.end(), stream) -
                           request_.streams.begin());
    const std::int64_t width = model_.heads(stream).count * layouts_[s].head_size,
                       columns = layouts_[s].columns() / pieces_;
    for (std::size_t part = 0; part < parts(); ++part) {
      T* out = request_.by_layer ? rows_[part][s * to_size(pieces_) + to_size(layer)]
                                 : rows_[part][s] + layer * width * team_.tensor().size();
      if (team_.tensor().size() == 1)
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

  /// Each rank of the row sends its heads of another's tokens there, and gets the others' heads of its own
  /// tokens.
  void exchange_heads(const T* values, std::int64_t width, const std::vector<std::int64_t>& positions, T* out,
                      std::int64_t columns) const {
    const Comm& comm = team_.tensor();
    const auto count = static_cast<std::int64_t>(positions.size());
    std::vector<std::vector<T>> send(to_size(comm.size()));
    for (int r = 0; r < comm.size(); ++r) {
      const Slab slab = slab_of(count, comm.size(), r);
      for (std::int64_t i = slab.first; i < slab.first + slab.count; ++i) {
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

  void end_round(Collector<T>& collector, const Round& round, Progress& progress) const {
    std::array<std::int64_t, 2> counts{};
    std::int64_t run = 0;
    for (const auto& sequences : round) {
      const Kept kept = kept_positions(sample_, sequences, request_.skip_first);
      for (std::size_t part = 0; part < 2; ++part)
        counts[part] += static_cast<std::int64_t>(kept[part].size());
      for (const std::int64_t s : sequences) run += sample_.sequences[to_size(s)].length;
    }
    for (std::size_t part = 0; part < parts(); ++part)
      collector.end_round(static_cast<Part>(part), counts[part]);
    progress.advance(run);
  }

  const Transformer& model_;
  const Sample& sample_;
  const CaptureRequest& request_;
  const Team& team_;
  AttentionSums* attention_;
  std::int64_t pieces_ = 1;              // Grams of a stream
  std::vector<HeadLayout> layouts_;      // by stream of the request
  std::array<std::vector<T*>, 2> rows_;  // by part and Gram: where this batch's rows go
};

}  // namespace

std::int64_t batch_tokens(const Job::Run& rule, const Sample& sample, const Team& team) {
  const std::int64_t rows = team.group().size() / team.tensor().size();
  const std::int64_t share = (sample.total() + rows - 1) / rows;
  return rule.batch_tokens.value_or(
      std::max<std::int64_t>(1, std::min(CaptureRequest{}.batch_tokens, share)));
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

template <class T>
std::vector<StreamGrams> capture_grams(const Transformer& model, const ModelConfig& config,
                                       const Sample& sample, const CaptureRequest& request, const Team& team,
                                       Progress& progress, Profile& profile, const UnitState* state,
                                       AttentionSums* attention) {
  return Capture<T>(model, config, sample, request, team, attention).run(progress, profile, state);
}

AttentionMoments finish_attention(AttentionSums& sums, const Transformer& model, const Team& team,
                                  std::int64_t tokens) {
  AttentionMoments moments = sums.finish(team.group(), tokens);
  moments.output.resize(moments.query.size());
  const std::int64_t tile = moments.head_size * moments.head_size;
  const Range own = model.heads(Stream::q);
  for (std::int64_t layer = 0; layer < moments.layers && team.data().is_root(); ++layer) {
    const std::vector<double> metric = model.output_metric(layer);
    std::copy(metric.begin(), metric.end(),
              moments.output.begin() + (layer * moments.heads + own.begin) * tile);
  }
  team.group().sum(moments.output.data(), static_cast<std::int64_t>(moments.output.size()));
  return moments;
}

template std::vector<StreamGrams> capture_grams<double>(const Transformer&, const ModelConfig&, const Sample&,
                                                        const CaptureRequest&, const Team&, Progress&,
                                                        Profile&, const UnitState*, AttentionSums*);
template std::vector<StreamGrams> capture_grams<float>(const Transformer&, const ModelConfig&, const Sample&,
                                                       const CaptureRequest&, const Team&, Progress&,
                                                       Profile&, const UnitState*, AttentionSums*);

}  // namespace headspan
