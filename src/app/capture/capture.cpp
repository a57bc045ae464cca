#include "app/capture/capture.h"

#include <algorithm>

#include "app/capture/device_gram_sink.h"
#include "app/capture/host_gram_sink.h"
#include "app/capture/rounds.h"
#include "base/checked.h"
#include "base/range.h"

namespace headspan {
namespace {

KeptPositions kept_positions(const Sample& sample, const std::vector<std::int64_t>& sequences,
                             std::int64_t skip_first) {
  KeptPositions kept;
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

/// Returns whether a pass runs a sequence.
bool runs(const DeviceShare& pass, const Sample& sample, std::size_t sequence) {
  const Part part = sample.heldout[sequence] != 0 ? Part::heldout : Part::fit;
  return std::find(pass.parts.begin(), pass.parts.end(), part) != pass.parts.end();
}

/// One run of capture_grams.
template <class T>
class Capture {
 public:
  Capture(const Transformer& model, const Sample& sample, const CaptureRequest& request,
          const ProcessLayout& processes, Progress& progress, Profile& profile)
      : model_(model),
        sample_(sample),
        request_(request),
        processes_(processes),
        progress_(progress),
        profile_(profile),
        setup_(model, request, processes, sample.has_heldout()),
        sink_(request.on_device ? make_device_sink<T>(setup_) : make_host_sink<T>(setup_)) {}

  std::vector<StreamGrams> run() {
    HS_ASSERT(request_.resident == nullptr || !request_.by_layer);
    const std::size_t count = sample_.sequences.size();
    ItemsDone sequences{0, std::vector<std::uint8_t>(count, 0)};
    const bool resumed = request_.state != nullptr && request_.state->resume(collector_, sequences);
    sink_->start_pass(sequences.pass, resumed);
    for (std::size_t pass = 0; pass < sequences.pass; ++pass)
      progress_.advance(tokens_of(setup_.passes[pass], sample_));
    for (;;) {
      run_pass(sequences);
      if (++sequences.pass == setup_.passes.size()) break;
      sequences.done.assign(count, 0);
      const Profile::Phase phase = profile_.enter("gram");
      sink_->start_pass(sequences.pass, false);
    }
    const Profile::Phase phase = profile_.enter("gram");
    if (request_.resident != nullptr) *request_.resident = sink_->release_resident();
    return sink_->finish();
  }

 private:
  void run_pass(ItemsDone& sequences) {
    const std::int64_t rows = processes_.data().size();
    std::vector<std::uint8_t> skipped = sequences.done;
    for (std::size_t s = 0; s < skipped.size(); ++s) {
      if (skipped[s] != 0) progress_.advance(sample_.sequences[s].length);
      if (!runs(setup_.passes[sequences.pass], sample_, s)) skipped[s] = 1;
    }
    for (const Round& round : plan_remaining(sample_.sequences, rows, request_.batch_tokens, skipped)) {
      {
        const Profile::Phase phase = profile_.enter("forward");
        run_batch(sequences.pass, round[to_size(processes_.data().rank())]);
        sink_->synchronise();
      }
      {
        const Profile::Phase phase = profile_.enter("gram");
        end_round(round);
        sink_->synchronise();
      }
      for (const auto& batch : round)
        for (const std::int64_t s : batch) sequences.done[to_size(s)] = 1;
      if (request_.state == nullptr) {
        stop_where_asked(processes_.group());
        continue;
      }
      const Profile::Phase phase = profile_.enter("save");
      request_.state->save_if_due(collector_, sequences);
    }
  }

  /// Runs this row's batch and collects this rank's share of its tokens.
  void run_batch(std::size_t pass, const std::vector<std::int64_t>& sequences) {
    const KeptPositions kept = kept_positions(sample_, sequences, request_.skip_first);
    AttentionSums* const attention = pass == 0 ? request_.attention : nullptr;  // pass 0 has all fit tokens
    QuerySink<T> queries;
    MeanSquareSink mean_squares;
    if (attention != nullptr) {
      queries = [&](std::int64_t layer, const T* values) {
        const Range heads = model_.heads(Stream::q);
        attention->add_queries(layer, heads.first, heads.count, values, kept[0]);
      };
      mean_squares = [&](std::int64_t layer, const std::vector<double>& values) {
        if (processes_.tensor().is_root()) attention->add_mean_squares(layer, values, kept[0]);
      };
    }
    sink_->run(make_batch(sample_, sequences), kept, queries, mean_squares);
  }

  void end_round(const Round& round) {
    std::array<std::int64_t, 2> counts{};
    std::int64_t tokens = 0;
    for (const auto& sequences : round) {
      const KeptPositions kept = kept_positions(sample_, sequences, request_.skip_first);
      for (std::size_t part = 0; part < 2; ++part)
        counts[part] += static_cast<std::int64_t>(kept[part].size());
      for (const std::int64_t s : sequences) tokens += sample_.sequences[to_size(s)].length;
    }
    for (std::size_t part = 0; part < setup_.spec.parts(); ++part)
      sink_->end_round(static_cast<Part>(part), counts[part]);
    progress_.advance(tokens);
  }

  const Transformer& model_;
  const Sample& sample_;
  const CaptureRequest& request_;
  const ProcessLayout& processes_;
  Progress& progress_;
  Profile& profile_;
  const CaptureSetup setup_;
  std::unique_ptr<GramSink<T>> sink_;
  const UnitState::CollectorSource<T> collector_ = [this]() -> Collector<T>& {
    return sink_->host_collector();
  };
};

}  // namespace

std::int64_t tokens_of(const DeviceShare& pass, const Sample& sample) {
  std::int64_t tokens = 0;
  for (std::size_t s = 0; s < sample.sequences.size(); ++s)
    if (runs(pass, sample, s)) tokens += sample.sequences[s].length;
  return tokens;
}

template <class T>
std::vector<StreamGrams> capture_grams(const Transformer& model, const Sample& sample,
                                       const CaptureRequest& request, const ProcessLayout& processes,
                                       Progress& progress, Profile& profile) {
  return Capture<T>(model, sample, request, processes, progress, profile).run();
}

AttentionMoments finish_attention(AttentionSums& sums, const Transformer& model,
                                  const ProcessLayout& processes, std::int64_t tokens) {
  AttentionMoments moments = sums.finish(processes.group(), tokens);
  moments.output.resize(moments.query.size());
  const std::int64_t tile = moments.head_size * moments.head_size;
  const std::int64_t first_head = model.heads(Stream::q).first;
  for (std::int64_t layer = 0; layer < moments.layers && processes.data().is_root(); ++layer) {
    const std::vector<double> metric = model.output_metric(layer);
    std::copy(metric.begin(), metric.end(),
              moments.output.begin() + (layer * moments.heads + first_head) * tile);
  }
  processes.group().sum(moments.output.data(), static_cast<std::int64_t>(moments.output.size()));
  return moments;
}

template std::vector<StreamGrams> capture_grams<double>(const Transformer&, const Sample&,
                                                        const CaptureRequest&, const ProcessLayout&,
                                                        Progress&, Profile&);
template std::vector<StreamGrams> capture_grams<float>(const Transformer&, const Sample&,
                                                       const CaptureRequest&, const ProcessLayout&, Progress&,
                                                       Profile&);

}  // namespace headspan
