#include "model/cache/decode_attention.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include <ATen/Parallel.h>
#include <ATen/ops/mul.h>

#include "base/checked.h"
#include "base/range.h"
#include "model/cache/page_spans.h"
#include "model/kernels/row_kernels.h"
#include "model/kernels/skinny_gemm.h"
#include "model/weights/weights.h"

namespace headspan {
namespace {

using Floats = std::vector<float>;

struct Shape {
  std::int64_t sequences;
  std::int64_t kv_heads;
  std::int64_t group;  // query heads of a KV head
  std::int64_t d;

  std::int64_t row() const { return kv_heads * group * d; }  // of a sequence: [kv_heads, group, d]
};

/// Neighbouring heads of a decoder, and what they have of a piece of its slice.
struct SliceUse {
  std::size_t decoder;
  std::int64_t place;    // of the first head among those of the decoder
  std::int64_t head;     // the first
  std::int64_t rows;     // query heads
  std::int64_t skipped;  // columns of the decoder that lie before the piece
  std::int64_t column;   // within the piece
  std::int64_t columns;
};

/// A slice as all sequences read it.
struct SliceRuns {
  std::vector<ColumnRun> pieces;
  std::vector<std::vector<SliceUse>> uses;  // of each piece
};

/// By slice of the layer.
std::vector<SliceRuns> pieces_of_layer(const Shape& shape, const StreamView& view) {
  std::vector<SliceRuns> all;
  for (std::size_t s = 0; s < view.layer->slices.size(); ++s) {
    const StoredSlice& slice = view.layer->slices[s];
    SliceRuns& own = all.emplace_back();
    own.pieces = column_runs_of(slice, *view.pages[s]);
    for (const ColumnRun& piece : own.pieces) {
      auto& uses = own.uses.emplace_back();
      for (std::size_t i = 0; i < slice.decoders.size(); ++i) {
        const CommonColumns common = common_columns(slice.decoders[i], piece);
        if (common.count <= 0) continue;
        for_each_run(slice.decoders[i], [&](std::int64_t place, std::int64_t head, std::int64_t count) {
          uses.push_back({i, place, head, count * shape.group, common.first - slice.decoders[i].first,
                          common.first - piece.first, common.count});
        });
      }
    }
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

/// Rows of query heads in place of heads as they are, [sequences, kv_heads, group, d], as the decoders of a
/// layer have them: folded with their maps (queries), or to be lifted with them (what is gathered).
class DecoderRows {
 public:
  /// plain: [sequences, kv_heads, group, d].
  DecoderRows(const Shape& shape, const CachedLayer& layer, float* plain)
      : shape_(shape), layer_(layer), plain_(plain) {
    for (const StoredSlice& slice : layer.slices) {
      auto& of_source = own_.emplace_back();
      for (const HeadDecoder& decoder : slice.decoders)
        of_source.emplace_back(decoder.matrix.defined() ? new float[to_size(shape.sequences * row(decoder))]
                                                        : nullptr);
    }
  }

  /// What meets a piece: [use.rows, use.columns], rows leading() apart.
  float* of(std::size_t slice, std::int64_t sequence, const SliceUse& use) {
    const HeadDecoder& own = layer_.slices[slice].decoders[use.decoder];
    return use.skipped +
           (own.matrix.defined()
                ? own_[slice][use.decoder].get() + sequence * row(own) + use.place * shape_.group * own.count
                : plain_ + sequence * shape_.row() + use.head * shape_.group * shape_.d);
  }
  std::int64_t leading(std::size_t slice, const SliceUse& use) const {
    return layer_.slices[slice].decoders[use.decoder].count;
  }

  /// Of one sequence, before something is gathered. Folding clears on its own.
  void clear(std::int64_t sequence) {
    for (std::size_t s = 0; s < own_.size(); ++s)
      for (std::size_t i = 0; i < own_[s].size(); ++i) {
        const std::int64_t count = row(layer_.slices[s].decoders[i]);
        if (own_[s][i]) std::fill_n(own_[s][i].get() + sequence * count, count, 0.0F);
      }
  }

  void fold() {
    if (has_maps())
      in_parts([&](std::int64_t part, std::int64_t parts) {
        for_each_map([&](const HeadDecoder& decoder, const float* map, const float* plain, float* own) {
          const Range some = range_of(decoder.count, parts, part);
          for (std::int64_t s = 0; s < shape_.sequences; ++s)
            std::fill_n(own + s * row(decoder) + some.first, some.count, 0.0F);
          skinny_gemm(plain, shape_.row(), shape_.sequences, map + some.first, decoder.count, some.count,
                      shape_.d, own + some.first, row(decoder));
        });
      });
  }

  void lift() {
    if (has_maps())
      in_parts([&](std::int64_t part, std::int64_t parts) {
        const Range some = range_of(shape_.d, parts, part);
        for_each_map([&](const HeadDecoder& decoder, const float* map, float* plain, const float* own) {
          skinny_gemm(own, row(decoder), shape_.sequences, map + some.first, shape_.d, some.count,
                      decoder.count, plain + some.first, shape_.row());
        });
      });
  }

 private:
  /// Of a sequence.
  std::int64_t row(const HeadDecoder& decoder) const {
    return static_cast<std::int64_t>(decoder.heads.size()) * shape_.group * decoder.count;
  }

  bool has_maps() const {
    return std::any_of(layer_.slices.begin(), layer_.slices.end(), [](const StoredSlice& slice) {
      return std::any_of(slice.decoders.begin(), slice.decoders.end(),
                         [](const HeadDecoder& decoder) { return decoder.matrix.defined(); });
    });
  }

  /// Calls use(decoder, map: [count, d], of keys [d, count], a query head of the first sequence as it is, and
  /// as the decoder has it).
  template <class Use>
  void for_each_map(const Use& use) {
    for (std::size_t s = 0; s < own_.size(); ++s)
      for (std::size_t i = 0; i < own_[s].size(); ++i) {
        const HeadDecoder& decoder = layer_.slices[s].decoders[i];
        if (!decoder.matrix.defined()) continue;
        for (std::size_t h = 0; h < decoder.heads.size(); ++h)
          for (std::int64_t g = 0; g < shape_.group; ++g) {
            const auto place = static_cast<std::int64_t>(h);
            use(decoder, decoder.matrix.data_ptr<float>() + place * decoder.count * shape_.d,
                plain_ + (decoder.heads[h] * shape_.group + g) * shape_.d,
                own_[s][i].get() + (place * shape_.group + g) * decoder.count);
          }
      }
  }

  const Shape shape_;
  const CachedLayer& layer_;
  float* plain_;
  // [slice][decoder]: [sequences, heads of the decoder, group, count]
  std::vector<std::vector<std::unique_ptr<float[]>>> own_;
};

/// What a thread needs for one sequence after the other.
struct Scratch {
  Floats scores;
  Floats columns;
  std::vector<std::vector<IntegerRows>> integers;
};

/// The query of one sequence.
class Query {
 public:
  Query(const Shape& shape, std::int64_t sequence, std::int64_t seen, const StreamView& keys,
        const StreamView& values, Scratch& scratch)
      : shape_(shape),
        sequence_(sequence),
        total_(seen),
        exact_(keys.exact.defined() ? std::min(keys.exact.size(0), seen) : 0),
        keys_(keys),
        values_(values),
        scratch_(scratch) {
    scratch.scores.assign(to_size(shape.kv_heads * shape.group * seen), 0.0F);
  }

  /// q: [kv_heads, group, d] of this sequence; folded: of all.
  void add_all_scores(const float* q, const std::vector<SliceRuns>& slices, DecoderRows& folded) {
    add_bias_scores(q);
    add_exact_scores(q);
    for (std::size_t s = 0; s < slices.size(); ++s) add_scores(s, slices[s], folded);
    replace_recent_scores(q);
  }

  /// log_sum: [kv_heads, group], or null.
  void make_weights(float* log_sum) {
    for (std::int64_t row = 0; row < shape_.kv_heads * shape_.group; ++row) {
      const float sum = softmax_row(scratch_.scores.data() + row * total_, total_);
      if (log_sum != nullptr) log_sum[row] = sum;
    }
  }

  /// out: as q; gathered: of all.
  void add_all_values(const std::vector<SliceRuns>& slices, DecoderRows& gathered, float* out) {
    add_recent_values(out);
    add_bias_values(out);
    add_exact_values(out);
    for (std::size_t s = 0; s < slices.size(); ++s) add_values(s, slices[s], gathered);
  }

 private:
  float* scores(std::int64_t head) { return scratch_.scores.data() + head * shape_.group * total_; }
  std::int64_t at(std::int64_t head) const { return head * shape_.group * shape_.d; }

  void add_bias_scores(const float* q) {
    if (!keys_.layer->bias.defined()) return;
    Floats each(to_size(shape_.group));
    for (std::int64_t head = 0; head < shape_.kv_heads; ++head) {
      std::fill(each.begin(), each.end(), 0.0F);
      skinny_gemm_transposed(q + at(head), shape_.d, shape_.group,
                             keys_.layer->bias.data_ptr<float>() + head * shape_.d, shape_.d, 1, shape_.d,
                             each.data(), 1);
      for (std::int64_t g = 0; g < shape_.group; ++g)
        std::fill_n(scores(head) + g * total_ + exact_, total_ - exact_, each[to_size(g)]);
    }
  }

  void add_bias_values(float* out) {
    if (!values_.layer->bias.defined()) return;
    for (std::int64_t head = 0; head < shape_.kv_heads; ++head)
      for (std::int64_t g = 0; g < shape_.group; ++g) {
        const float* weights = scores(head) + g * total_;
        float sum = 0;
#pragma omp simd reduction(+ : sum)
        for (std::int64_t t = exact_; t < total_; ++t) sum += weights[t];
        skinny_gemm(&sum, 1, 1, values_.layer->bias.data_ptr<float>() + head * shape_.d, shape_.d, shape_.d,
                    1, out + at(head) + g * shape_.d, shape_.d);
      }
  }

  /// exact: [tokens, kv_heads, d].
  void add_exact_scores(const float* q) {
    for (std::int64_t head = 0; exact_ > 0 && head < shape_.kv_heads; ++head)
      skinny_gemm_transposed(q + at(head), shape_.d, shape_.group,
                             keys_.exact.data_ptr<float>() + head * shape_.d, shape_.kv_heads * shape_.d,
                             exact_, shape_.d, scores(head), total_);
  }

  void add_exact_values(float* out) {
    for (std::int64_t head = 0; exact_ > 0 && head < shape_.kv_heads; ++head)
      skinny_gemm(scores(head), total_, shape_.group, values_.exact.data_ptr<float>() + head * shape_.d,
                  shape_.kv_heads * shape_.d, shape_.d, exact_, out + at(head), shape_.d);
  }

  float* stored_scores(const SliceUse& use, std::int64_t token) { return scores(use.head) + exact_ + token; }

  void add_scores(std::size_t s, const SliceRuns& slice, DecoderRows& folded) {
    auto& integers = scratch_.integers;
    integers.resize(std::max(integers.size(), slice.pieces.size()));
    for (std::size_t p = 0; p < slice.pieces.size(); ++p) {
      if (!slice.pieces[p].coded) continue;
      const auto& uses = slice.uses[p];
      integers[p].resize(std::max(integers[p].size(), uses.size()));
      for (std::size_t i = 0; i < uses.size(); ++i)
        integers[p][i].assign(folded.of(s, sequence_, uses[i]), folded.leading(s, uses[i]), uses[i].rows,
                              uses[i].columns);
    }
    for_each_column_run(
        keys_.layer->slices[s], *keys_.pages[s], slice.pieces, total_ - exact_, scratch_.columns,
        [&](std::size_t p, const TokenSpan<float>& z) {
          for (const SliceUse& one : slice.uses[p])
            skinny_gemm_transposed(folded.of(s, sequence_, one), folded.leading(s, one), one.rows,
                                   z.values + one.column, z.leading, z.tokens, one.columns,
                                   stored_scores(one, z.token), total_);
        },
        [&](std::size_t p, std::int64_t token, const QuantizedBlock& z) {
          for (std::size_t i = 0; i < slice.uses[p].size(); ++i)
            quantized_gemm_transposed(integers[p][i], z, stored_scores(slice.uses[p][i], token), total_);
        });
  }

  void add_values(std::size_t s, const SliceRuns& slice, DecoderRows& gathered) {
    for_each_column_run(
        values_.layer->slices[s], *values_.pages[s], slice.pieces, total_ - exact_, scratch_.columns,
        [&](std::size_t p, const TokenSpan<float>& z) {
          for (const SliceUse& one : slice.uses[p])
            skinny_gemm(stored_scores(one, z.token), total_, one.rows, z.values + one.column, z.leading,
                        one.columns, z.tokens, gathered.of(s, sequence_, one), gathered.leading(s, one));
        },
        [&](std::size_t p, std::int64_t token, const QuantizedBlock& z) {
          for (const SliceUse& one : slice.uses[p])
            quantized_gemm(stored_scores(one, token), total_, one.rows, z, gathered.of(s, sequence_, one),
                           gathered.leading(s, one));
        });
  }

  /// Calls use(head, row's place in q, its score of a token, the token's place among the recent ones).
  template <class Use>
  void for_each_recent(const Use& use) {
    if (!keys_.recent.defined()) return;
    for (std::int64_t head = 0; head < shape_.kv_heads; ++head)
      for (std::int64_t g = 0; g < shape_.group; ++g)
        for (std::int64_t t = std::max(keys_.recent_begin, total_ - keys_.exact_recent); t < total_; ++t)
          use(head, at(head) + g * shape_.d, scores(head)[g * total_ + t], t - keys_.recent_begin);
  }

  void replace_recent_scores(const float* q) {
    for_each_recent([&](std::int64_t head, std::int64_t row, float& score, std::int64_t place) {
      score = 0;
      skinny_gemm_transposed(q + row, shape_.d, 1, recent(keys_, head, place), shape_.d, 1, shape_.d, &score,
                             1);
    });
  }

  /// And takes their weights away.
  void add_recent_values(float* out) {
    for_each_recent([&](std::int64_t head, std::int64_t row, float& weight, std::int64_t place) {
      skinny_gemm(&weight, 1, 1, recent(values_, head, place), shape_.d, shape_.d, 1, out + row, shape_.d);
      weight = 0;
    });
  }

  const float* recent(const StreamView& view, std::int64_t head, std::int64_t place) const {
    return view.recent.data_ptr<float>() + (place * shape_.kv_heads + head) * shape_.d;
  }

  const Shape shape_;
  const std::int64_t sequence_;
  const std::int64_t total_;  // tokens that the query sees
  const std::int64_t exact_;  // of them, the first that are stored as they are
  const StreamView& keys_;
  const StreamView& values_;
  Scratch& scratch_;  // its scores: [kv_heads, group, total], weights after the softmax
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
  DecoderRows folded(shape, key_layer, rows), gathered(shape, value_layer, results);
  const auto key_pieces = pieces_of_layer(shape, keys.front());
  const auto value_pieces = pieces_of_layer(shape, values.front());
  folded.fold();
  at::parallel_for(0, shape.sequences, 1, [&](std::int64_t begin, std::int64_t end) {
    Scratch scratch;
    for (std::int64_t s = begin; s < end; ++s) {
      gathered.clear(s);
      if (seen[to_size(s)] == 0) continue;
      Query query(shape, s, seen[to_size(s)], keys[to_size(s)], values[to_size(s)], scratch);
      query.add_all_scores(rows + s * shape.row(), key_pieces, folded);
      query.make_weights(
          out.log_sum.defined() ? out.log_sum.data_ptr<float>() + s * shape.kv_heads * shape.group : nullptr);
      query.add_all_values(value_pieces, gathered, results + s * shape.row());
    }
  });
  gathered.lift();
}

}  // namespace headspan
