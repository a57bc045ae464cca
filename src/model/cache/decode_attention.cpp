#include "model/cache/decode_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>

#include <ATen/Parallel.h>
#include <ATen/ops/mul.h>

#include "base/checked.h"
#include "base/range.h"
#include "model/cache/page_spans.h"
#include "model/kernels/row_kernels.h"
#include "model/kernels/skinny_gemm.h"

namespace headspan {
namespace {

using Floats = std::vector<float>;

struct Shape {
  std::int64_t sequences;
  std::int64_t kv_heads;
  std::int64_t group;  // query heads per KV head
  std::int64_t d;

  std::int64_t row() const { return kv_heads * group * d; }  // numbers per sequence: [kv_heads, group, d]
};

/// Neighbouring heads of a decoder, and the columns of a run that they read.
struct SliceUse {
  std::size_t decoder;
  std::int64_t index;    // of the first head in the list of the decoder
  std::int64_t head;     // the first
  std::int64_t rows;     // query heads
  std::int64_t skipped;  // columns of the decoder before the run
  std::int64_t column;   // within the run
  std::int64_t columns;
};

/// The column runs of a slice and who reads them; the same for all sequences.
struct SliceRuns {
  std::vector<ColumnRun> runs;
  std::vector<std::vector<SliceUse>> uses;  // of each run
};

/// Returns who reads a run of a slice. group: query heads per head.
std::vector<SliceUse> uses_of_run(const StoredSlice& slice, const ColumnRun& run, std::int64_t group) {
  std::vector<SliceUse> uses;
  for (std::size_t i = 0; i < slice.decoders.size(); ++i) {
    const CommonColumns common = common_columns(slice.decoders[i], run);
    if (common.count <= 0) continue;
    for_each_run(slice.decoders[i], [&](std::int64_t index, std::int64_t head, std::int64_t count) {
      uses.push_back({i, index, head, count * group, common.first - slice.decoders[i].first,
                      common.first - run.first, common.count});
    });
  }
  return uses;
}

/// Returns the runs of each slice of the layer.
std::vector<SliceRuns> runs_of_layer(const Shape& shape, const StreamView& view) {
  std::vector<SliceRuns> all;
  for (std::size_t s = 0; s < view.layer->slices.size(); ++s) {
    const StoredSlice& slice = view.layer->slices[s];
    SliceRuns& of_slice = all.emplace_back();
    of_slice.runs = column_runs_of(slice, *view.pages[s]);
    for (const ColumnRun& run : of_slice.runs) of_slice.uses.push_back(uses_of_run(slice, run, shape.group));
  }
  return all;
}

/// Calls run(part, parts) on every thread.
template <class Run>
void in_parts(const Run& run) {
  const auto parts = static_cast<std::int64_t>(at::get_num_threads());
  at::parallel_for(0, parts, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t part = begin; part < end; ++part) run(part, parts);
  });
}

/// Rows of query heads, [sequences, kv_heads, group, d], as the decoders of a layer use them: queries that
/// have absorbed the decoder matrices, or gathered columns that are yet to be reconstructed.
class DecoderRows {
 public:
  /// plain: [sequences, kv_heads, group, d].
  DecoderRows(const Shape& shape, const CachedLayer& layer, float* plain)
      : shape_(shape), layer_(layer), plain_(plain) {
    for (const StoredSlice& slice : layer.slices) {
      auto& of_slice = rows_.emplace_back();
      for (const HeadDecoder& decoder : slice.decoders)
        of_slice.emplace_back(decoder.matrix.defined() ? new float[to_size(shape.sequences * row(decoder))]
                                                       : nullptr);
    }
  }

  /// Returns the rows that multiply a run: [use.rows, use.columns], rows leading() apart.
  float* of(std::size_t slice, std::int64_t sequence, const SliceUse& use) {
    const HeadDecoder& decoder = layer_.slices[slice].decoders[use.decoder];
    return use.skipped + (decoder.matrix.defined()
                              ? rows_[slice][use.decoder].get() + sequence * row(decoder) +
                                    use.index * shape_.group * decoder.count
                              : plain_ + sequence * shape_.row() + use.head * shape_.group * shape_.d);
  }
  std::int64_t leading(std::size_t slice, const SliceUse& use) const {
    return layer_.slices[slice].decoders[use.decoder].count;
  }

  /// Sets the rows of one sequence to zero, before columns are gathered. Not needed before absorb(), which
  /// does so itself.
  void clear(std::int64_t sequence) {
    for (std::size_t s = 0; s < rows_.size(); ++s)
      for (std::size_t i = 0; i < rows_[s].size(); ++i) {
        const std::int64_t count = row(layer_.slices[s].decoders[i]);
        if (rows_[s][i]) std::fill_n(rows_[s][i].get() + sequence * count, count, 0.0F);
      }
  }

  void absorb() {
    if (has_maps())
      in_parts([&](std::int64_t part, std::int64_t parts) {
        for_each_map([&](const HeadDecoder& decoder, const float* map, const float* plain, float* rows) {
          const Range columns = range_of(decoder.count, parts, part);
          for (std::int64_t s = 0; s < shape_.sequences; ++s)
            std::fill_n(rows + s * row(decoder) + columns.first, columns.count, 0.0F);
          skinny_gemm(plain, shape_.row(), shape_.sequences, map + columns.first, decoder.count,
                      columns.count, shape_.d, rows + columns.first, row(decoder));
        });
      });
  }

  void reconstruct() {
    if (has_maps())
      in_parts([&](std::int64_t part, std::int64_t parts) {
        const Range columns = range_of(shape_.d, parts, part);
        for_each_map([&](const HeadDecoder& decoder, const float* map, float* plain, const float* rows) {
          skinny_gemm(rows, row(decoder), shape_.sequences, map + columns.first, shape_.d, columns.count,
                      decoder.count, plain + columns.first, shape_.row());
        });
      });
  }

 private:
  /// Returns how many numbers a decoder's rows have per sequence.
  std::int64_t row(const HeadDecoder& decoder) const {
    return static_cast<std::int64_t>(decoder.heads.size()) * shape_.group * decoder.count;
  }

  bool has_maps() const {
    return std::any_of(layer_.slices.begin(), layer_.slices.end(), [](const StoredSlice& slice) {
      return std::any_of(slice.decoders.begin(), slice.decoders.end(),
                         [](const HeadDecoder& decoder) { return decoder.matrix.defined(); });
    });
  }

  /// Calls use(decoder, map, plain, rows) for each query head of each decoder with a matrix. map: [count, d],
  /// for keys [d, count]; plain: the row of the query head in the first sequence as it is, rows: the same as
  /// the decoder uses it.
  template <class Use>
  void for_each_map(const Use& use) {
    for (std::size_t s = 0; s < rows_.size(); ++s)
      for (std::size_t i = 0; i < rows_[s].size(); ++i) {
        const HeadDecoder& decoder = layer_.slices[s].decoders[i];
        if (!decoder.matrix.defined()) continue;
        const auto rows = static_cast<std::int64_t>(decoder.heads.size()) * shape_.group;
        for (std::int64_t r = 0; r < rows; ++r) {
          const std::int64_t h = r / shape_.group, head = decoder.heads[to_size(h)];
          use(decoder, decoder.matrix.data_ptr<float>() + h * decoder.count * shape_.d,
              plain_ + (head * shape_.group + r % shape_.group) * shape_.d,
              rows_[s][i].get() + r * decoder.count);
        }
      }
  }

  const Shape shape_;
  const CachedLayer& layer_;
  float* plain_;
  // [slice][decoder]: [sequences, heads of the decoder, group, count]
  std::vector<std::vector<std::unique_ptr<float[]>>> rows_;
};

void cap_scores(float* scores, std::int64_t count, float cap) {
  for (std::int64_t i = 0; i < count; ++i) scores[i] = cap * std::tanh(scores[i] / cap);
}

/// The workspace of a thread, which takes one sequence after another.
struct Scratch {
  Floats scores;
  Floats columns;
  std::vector<std::vector<IntegerRows>> integers;  // [run][use]
};

/// Attention of the query of one sequence.
class Query {
 public:
  Query(const Shape& shape, std::int64_t sequence, std::int64_t seen, const StreamView& keys,
        const StreamView& values, Scratch& scratch)
      : shape_(shape),
        sequence_(sequence),
        total_(seen),
        split_(split_tokens(keys.kept, seen)),
        keys_(keys),
        values_(values),
        scratch_(scratch) {
    scratch.scores.assign(to_size(shape.kv_heads * shape.group * seen), 0.0F);
  }

  /// Computes the scores. q: [kv_heads, group, d] of this sequence; absorbed: of all sequences.
  void add_all_scores(const float* q, const std::vector<SliceRuns>& slices, DecoderRows& absorbed) {
    add_bias_scores(q);
    add_exact_scores(q);
    for (std::size_t s = 0; s < slices.size(); ++s) add_scores(s, slices[s], absorbed);
    replace_kept_scores(q);
  }

  /// Turns the scores into weights. log_sum: [kv_heads, group], or null.
  void make_weights(float* log_sum) {
    const AttentionRule& rule = keys_.layer->attention;
    const std::int64_t first = rule.first(total_);
    for (std::int64_t row = 0; row < shape_.kv_heads * shape_.group; ++row) {
      float* const scores = scratch_.scores.data() + row * total_;
      std::fill_n(scores, first, 0.0F);
      if (rule.softcap > 0) cap_scores(scores + first, total_ - first, static_cast<float>(rule.softcap));
      const float sum = softmax_row(scores + first, total_ - first);
      if (log_sum != nullptr) log_sum[row] = sum;
    }
  }

  /// Adds the weighted values. out: [kv_heads, group, d] of this sequence; gathered: of all sequences.
  void add_all_values(const std::vector<SliceRuns>& slices, DecoderRows& gathered, float* out) {
    add_kept_values(out);
    add_bias_values(out);
    add_exact_values(out);
    for (std::size_t s = 0; s < slices.size(); ++s) add_values(s, slices[s], gathered);
  }

 private:
  float* scores(std::int64_t head) { return scratch_.scores.data() + head * shape_.group * total_; }
  std::int64_t at(std::int64_t head) const { return head * shape_.group * shape_.d; }

  void add_bias_scores(const float* q) {
    if (!keys_.layer->bias.defined()) return;
    Floats biases(to_size(shape_.group));
    for (std::int64_t head = 0; head < shape_.kv_heads; ++head) {
      std::fill(biases.begin(), biases.end(), 0.0F);
      skinny_gemm_transposed(q + at(head), shape_.d, shape_.group,
                             keys_.layer->bias.data_ptr<float>() + head * shape_.d, shape_.d, 1, shape_.d,
                             biases.data(), 1);
      for (std::int64_t g = 0; g < shape_.group; ++g)
        std::fill_n(scores(head) + g * total_ + split_.exact, total_ - split_.exact, biases[to_size(g)]);
    }
  }

  void add_bias_values(float* out) {
    if (!values_.layer->bias.defined()) return;
    for (std::int64_t head = 0; head < shape_.kv_heads; ++head)
      for (std::int64_t g = 0; g < shape_.group; ++g) {
        const float* weights = scores(head) + g * total_;
        float sum = 0;
#pragma omp simd reduction(+ : sum)
        for (std::int64_t t = split_.exact; t < total_; ++t) sum += weights[t];
        skinny_gemm(&sum, 1, 1, values_.layer->bias.data_ptr<float>() + head * shape_.d, shape_.d, shape_.d,
                    1, out + at(head) + g * shape_.d, shape_.d);
      }
  }

  /// exact: [tokens, kv_heads, d].
  void add_exact_scores(const float* q) {
    for (std::int64_t head = 0; split_.exact > 0 && head < shape_.kv_heads; ++head)
      skinny_gemm_transposed(q + at(head), shape_.d, shape_.group,
                             keys_.exact.data_ptr<float>() + head * shape_.d, shape_.kv_heads * shape_.d,
                             split_.exact, shape_.d, scores(head), total_);
  }

  void add_exact_values(float* out) {
    for (std::int64_t head = 0; split_.exact > 0 && head < shape_.kv_heads; ++head)
      skinny_gemm(scores(head), total_, shape_.group, values_.exact.data_ptr<float>() + head * shape_.d,
                  shape_.kv_heads * shape_.d, shape_.d, split_.exact, out + at(head), shape_.d);
  }

  float* stored_scores(const SliceUse& use, std::int64_t token) {
    return scores(use.head) + split_.exact + token;
  }

  void add_scores(std::size_t s, const SliceRuns& slice, DecoderRows& absorbed) {
    auto& integers = scratch_.integers;
    integers.resize(std::max(integers.size(), slice.runs.size()));
    for (std::size_t r = 0; r < slice.runs.size(); ++r) {
      if (!slice.runs[r].coded) continue;
      const auto& uses = slice.uses[r];
      integers[r].resize(std::max(integers[r].size(), uses.size()));
      for (std::size_t i = 0; i < uses.size(); ++i)
        integers[r][i].assign(absorbed.of(s, sequence_, uses[i]), absorbed.leading(s, uses[i]), uses[i].rows,
                              uses[i].columns);
    }
    for_each_column_run(
        {keys_.layer->slices[s], *keys_.pages[s], slice.runs}, split_.stored, scratch_.columns,
        [&](std::size_t r, const TokenSpan<float>& z) {
          for (const SliceUse& use : slice.uses[r])
            skinny_gemm_transposed(absorbed.of(s, sequence_, use), absorbed.leading(s, use), use.rows,
                                   z.values + use.column, z.leading, z.tokens, use.columns,
                                   stored_scores(use, z.token), total_);
        },
        [&](std::size_t r, std::int64_t token, const QuantizedBlock& z) {
          for (std::size_t i = 0; i < slice.uses[r].size(); ++i)
            quantized_gemm_transposed(integers[r][i], z, stored_scores(slice.uses[r][i], token), total_);
        });
  }

  void add_values(std::size_t s, const SliceRuns& slice, DecoderRows& gathered) {
    for_each_column_run(
        {values_.layer->slices[s], *values_.pages[s], slice.runs}, split_.stored, scratch_.columns,
        [&](std::size_t r, const TokenSpan<float>& z) {
          for (const SliceUse& use : slice.uses[r])
            skinny_gemm(stored_scores(use, z.token), total_, use.rows, z.values + use.column, z.leading,
                        use.columns, z.tokens, gathered.of(s, sequence_, use), gathered.leading(s, use));
        },
        [&](std::size_t r, std::int64_t token, const QuantizedBlock& z) {
          for (const SliceUse& use : slice.uses[r])
            quantized_gemm(stored_scores(use, token), total_, use.rows, z, gathered.of(s, sequence_, use),
                           gathered.leading(s, use));
        });
  }

  /// Calls use(offset of a row in q, its score for a token, the head of this token in `view`) for every row
  /// and every token that is stored but read as it is: those that begin a document, and recent ones. The head
  /// is null where the token is hidden.
  template <class Use>
  void for_each_kept(const StreamView& view, const Use& use) {
    for (std::int64_t row = 0; row < shape_.kv_heads * shape_.group; ++row) {
      const auto visit = [&](std::int64_t token, const at::Tensor& tokens, std::int64_t index) {
        const std::int64_t head = index * shape_.kv_heads + row / shape_.group;
        use(row * shape_.d, scores(0)[row * total_ + token],
            tokens.defined() ? tokens.data_ptr<float>() + head * shape_.d : nullptr);
      };
      const auto& starts = view.start_tokens;
      for (std::size_t i = 0; i < starts.size() && starts[i] < total_; ++i)
        visit(starts[i], view.starts, static_cast<std::int64_t>(i));
      for (std::int64_t t = split_.recent_begin; t < total_ && view.recent.defined(); ++t)
        visit(t, view.recent, t - view.recent_begin);
    }
  }

  void replace_kept_scores(const float* q) {
    for_each_kept(keys_, [&](std::int64_t row, float& score, const float* key) {
      score = key == nullptr ? -std::numeric_limits<float>::infinity() : 0;
      if (key != nullptr) skinny_gemm_transposed(q + row, shape_.d, 1, key, shape_.d, 1, shape_.d, &score, 1);
    });
  }

  /// Also sets their weights to zero.
  void add_kept_values(float* out) {
    for_each_kept(values_, [&](std::int64_t row, float& weight, const float* value) {
      if (value != nullptr) skinny_gemm(&weight, 1, 1, value, shape_.d, shape_.d, 1, out + row, shape_.d);
      weight = 0;
    });
  }

  const Shape shape_;
  const std::int64_t sequence_;
  const std::int64_t total_;  // tokens that the query sees
  const TokenSplit split_;    // of these
  const StreamView& keys_;
  const StreamView& values_;
  Scratch& scratch_;  // its scores: [kv_heads, group, total]; after the softmax they are weights
};

}  // namespace

void attend_step(const at::Tensor& q, const std::vector<std::int64_t>& seen,
                 const std::vector<StreamView>& keys, const std::vector<StreamView>& values,
                 const PartialAttention& out) {
  const CachedLayer &key_layer = *keys.front().layer, &value_layer = *values.front().layer;
  const Shape shape{q.size(0), key_layer.kv_heads, q.size(1) / key_layer.kv_heads, q.size(2)};
  const at::Tensor scaled = at::mul(q, 1 / std::sqrt(static_cast<double>(shape.d)));
  out.values.zero_();
  auto *rows = scaled.data_ptr<float>(), *results = out.values.data_ptr<float>();
  DecoderRows absorbed(shape, key_layer, rows), gathered(shape, value_layer, results);
  const auto key_runs = runs_of_layer(shape, keys.front());
  const auto value_runs = runs_of_layer(shape, values.front());
  absorbed.absorb();
  at::parallel_for(0, shape.sequences, 1, [&](std::int64_t begin, std::int64_t end) {
    Scratch scratch;
    for (std::int64_t s = begin; s < end; ++s) {
      gathered.clear(s);
      if (seen[to_size(s)] == 0) continue;
      Query query(shape, s, seen[to_size(s)], keys[to_size(s)], values[to_size(s)], scratch);
      query.add_all_scores(rows + s * shape.row(), key_runs, absorbed);
      query.make_weights(
          out.log_sum.defined() ? out.log_sum.data_ptr<float>() + s * shape.kv_heads * shape.group : nullptr);
      query.add_all_values(value_runs, gathered, results + s * shape.row());
    }
  });
  gathered.reconstruct();
}

}  // namespace headspan
