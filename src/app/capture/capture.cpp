#include "app/capture/capture.h"

#include <algorithm>

#include "app/capture/device_gram_sink.h"
#include "app/capture/host_gram_sink.h"
#include "app/capture/rounds.h"
#include "base/checked.h"
#include "base/range.h"

namespace headspan {
namespace {

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

/// Whether a pass runs a sequence.
bool runs(const DeviceShare& pass, const Sample& sample, std::size_t sequence) {
  const Part part = sample.heldout[sequence] != 0 ? Part::heldout : Part::fit;
  return std::find(pass.parts.begin(), pass.parts.end(), part) != pass.parts.end();
}

/// One run of capture_grams.
template <class T>
class Capture {
 public:
  Capture(const Transformer& model, const ModelConfig& config, const Sample& sample,
          const CaptureRequest& request, const ProcessLayout& team, AttentionSums* attention)
      : model_(model),
        sample_(sample),
        request_(request),
        team_(team),
        attention_(attention),
        setup_(make_setup(model, config, sample, request, team)),
        rows_(request.device ? rows_on_device<T>(setup_) : rows_on_host<T>(setup_)) {}

  std::vector<StreamGrams> run(Progress& progress, Profile& profile, const UnitState* state,
                               std::map<std::size_t, ResidentGrams>* resident) {
    HS_ASSERT(resident == nullptr || !request_.by_layer);
    const std::size_t count = sample_.sequences.size();
    PiecesDone pieces{0, std::vector<std::uint8_t>(count, 0)};
    if (state != nullptr)
      pieces = rows_->resume(*state, static_cast<std::int64_t>(count));
    else
      rows_->begin(0);
    for (std::size_t pass = 0; pass < pieces.pass; ++pass)
      progress.advance(tokens_of(setup_.passes[pass], sample_));
    for (;;) {
      run_pass(pieces, progress, profile, state);
      if (++pieces.pass == setup_.passes.size()) break;
      pieces.done.assign(count, 0);
      const Profile::Phase phase = profile.enter("gram");
      rows_->begin(pieces.pass);
    }
    const Profile::Phase phase = profile.enter("gram");
    if (resident != nullptr) *resident = rows_->release_resident();
    return rows_->finish();
  }

 private:
  static CaptureSetup make_setup(const Transformer& model, const ModelConfig& config, const Sample& sample,
                                 const CaptureRequest& request, const ProcessLayout& team) {
    CaptureSetup setup{&model, &team, &request, sample.has_heldout(), 1, {}, {}, {}, request.passes};
    if (setup.passes.empty()) setup.passes = {everything(request.streams.size(), setup.heldout)};
    if (request.by_layer) setup.pieces = config.layers;
    for (const Stream stream : request.streams) {
      const HeadLayout& layout = setup.layouts.emplace_back(stream_layout(config, stream));
      const std::int64_t heads = layout.heads() / setup.pieces;
      setup.columns.insert(setup.columns.end(), to_size(setup.pieces), heads * layout.head_size);
      setup.blocks.insert(setup.blocks.end(), to_size(setup.pieces),
                          gram_block(team.grid().shape(), heads, layout.head_size));
    }
    return setup;
  }

  void run_pass(PiecesDone& pieces, Progress& progress, Profile& profile, const UnitState* state) {
    pass_ = pieces.pass;
    const std::int64_t rows = team_.group().size() / team_.tensor().size();
    std::vector<std::uint8_t> passed_over = pieces.done;
    for (std::size_t s = 0; s < passed_over.size(); ++s) {
      if (passed_over[s] != 0) progress.advance(sample_.sequences[s].length);
      if (!runs(setup_.passes[pass_], sample_, s)) passed_over[s] = 1;
    }
    for (const Round& round : plan_remaining(sample_.sequences, rows, request_.batch_tokens, passed_over)) {
      {
        const Profile::Phase phase = profile.enter("forward");
        run_batch(round[to_size(team_.group().rank() / team_.tensor().size())]);
        rows_->wait();
      }
      {
        const Profile::Phase phase = profile.enter("gram");
        end_round(round, progress);
        rows_->wait();
      }
      for (const auto& batch : round)
        for (const std::int64_t s : batch) pieces.done[to_size(s)] = 1;
      if (state == nullptr) {
        stop_where_asked(team_.group());
        continue;
      }
      const Profile::Phase phase = profile.enter("save");
      rows_->keep(*state, pieces);
    }
  }

  /// Runs this row's batch and collects this rank's tokens of it.
  void run_batch(const std::vector<std::int64_t>& sequences) {
    const Kept kept = kept_positions(sample_, sequences, request_.skip_first);
    QuerySink<T> queries;
    MeanSquareSink mean_squares;
    if (attention_ != nullptr && pass_ == 0) {  // which has all fit tokens
      queries = [&](std::int64_t layer, const T* values) {
        const Range own = model_.heads(Stream::q);
        attention_->add_queries(layer, own.first, own.count, values, kept[0]);
      };
      mean_squares = [&](std::int64_t layer, const std::vector<double>& values) {
        if (team_.tensor().is_root()) attention_->add_mean_squares(layer, values, kept[0]);
      };
    }
    rows_->run(make_batch(sample_, sequences), kept, queries, mean_squares);
  }

  void end_round(const Round& round, Progress& progress) const {
    std::array<std::int64_t, 2> counts{};
    std::int64_t run = 0;
    for (const auto& sequences : round) {
      const Kept kept = kept_positions(sample_, sequences, request_.skip_first);
      for (std::size_t part = 0; part < 2; ++part)
        counts[part] += static_cast<std::int64_t>(kept[part].size());
      for (const std::int64_t s : sequences) run += sample_.sequences[to_size(s)].length;
    }
    for (std::size_t part = 0; part < setup_.parts(); ++part)
      rows_->end_round(static_cast<Part>(part), counts[part]);
    progress.advance(run);
  }

  const Transformer& model_;
  const Sample& sample_;
  const CaptureRequest& request_;
  const ProcessLayout& team_;
  AttentionSums* attention_;
  CaptureSetup setup_;
  std::unique_ptr<GramSink<T>> rows_;
  std::size_t pass_ = 0;
};

}  // namespace

std::int64_t tokens_of(const DeviceShare& pass, const Sample& sample) {
  std::int64_t tokens = 0;
  for (std::size_t s = 0; s < sample.sequences.size(); ++s)
    if (runs(pass, sample, s)) tokens += sample.sequences[s].length;
  return tokens;
}

template <class T>
std::vector<StreamGrams> capture_grams(const Transformer& model, const ModelConfig& config,
                                       const Sample& sample, const CaptureRequest& request,
                                       const ProcessLayout& team, Progress& progress, Profile& profile,
                                       const UnitState* state, AttentionSums* attention,
                                       std::map<std::size_t, ResidentGrams>* resident) {
  return Capture<T>(model, config, sample, request, team, attention).run(progress, profile, state, resident);
}

AttentionMoments finish_attention(AttentionSums& sums, const Transformer& model, const ProcessLayout& team,
                                  std::int64_t tokens) {
  AttentionMoments moments = sums.finish(team.group(), tokens);
  moments.output.resize(moments.query.size());
  const std::int64_t tile = moments.head_size * moments.head_size;
  const Range own = model.heads(Stream::q);
  for (std::int64_t layer = 0; layer < moments.layers && team.data().is_root(); ++layer) {
    const std::vector<double> metric = model.output_metric(layer);
    std::copy(metric.begin(), metric.end(),
              moments.output.begin() + (layer * moments.heads + own.first) * tile);
  }
  team.group().sum(moments.output.data(), static_cast<std::int64_t>(moments.output.size()));
  return moments;
}

template std::vector<StreamGrams> capture_grams<double>(const Transformer&, const ModelConfig&, const Sample&,
                                                        const CaptureRequest&, const ProcessLayout&,
                                                        Progress&, Profile&, const UnitState*, AttentionSums*,
                                                        std::map<std::size_t, ResidentGrams>*);
template std::vector<StreamGrams> capture_grams<float>(const Transformer&, const ModelConfig&, const Sample&,
                                                       const CaptureRequest&, const ProcessLayout&, Progress&,
                                                       Profile&, const UnitState*, AttentionSums*,
                                                       std::map<std::size_t, ResidentGrams>*);

}  // namespace headspan
