#include "model/cache/decode_attention.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include <ATen/Parallel.h>
#include <ATen/ops/mul.h>

#include "model/cache/stretch.h"
#include "model/kernels/few_rows.h"
#include "model/kernels/row_kernels.h"
#include "model/weights/weights.h"

namespace headspan {
namespace {

std::size_t to_size(std::int64_t n) { return static_cast<std::size_t>(n); }

using Floats = std::vector<float>;

struct Shape {
  std::int64_t sequences;
  std::int64_t kv_heads;
  std::int64_t group;  // query heads of a KV head
  std::int64_t d;

  std::int64_t row() const { return kv_heads * group * d; }  // of a sequence: [kv_heads, group, d]
};

/// Neighbouring heads of a reader, and what they have of a piece of its source.
struct Meeting {
  std::size_t reader;
  std::int64_t place;    // of the first head among those of the reader
  std::int64_t head;     // the first
  std::int64_t rows;     // query heads
  std::int64_t skipped;  // columns of the reader that lie before the piece
  std::int64_t column;   // within the piece
  std::int64_t columns;
};

/// A source as all sequences read it.
struct SourcePieces {
  std::vector<Piece> pieces;
  std::vector<std::vector<Meeting>> meetings;  // of each piece
};

/// By source of the layer.
std::vector<SourcePieces> pieces_of_layer(const Shape& shape, const StreamView& view) {
  std::vector<SourcePieces> all;
  for (std::size_t s = 0; s < view.layer->sources.size(); ++s) {
    const Source& source = view.layer->sources[s];
    SourcePieces& own = all.emplace_back();
    own.pieces = pieces_of(source, *view.pages[s]);
    for (const Piece& piece : own.pieces) {
      auto& meetings = own.meetings.emplace_back();
      for (std::size_t i = 0; i < source.readers.size(); ++i) {
        const CommonColumns common = common_columns(source.readers[i], piece);
        if (common.count <= 0) continue;
        for_each_run(source.readers[i], [&](std::int64_t place, std::int64_t head, std::int64_t count) {
          meetings.push_back({i, place, head, count * shape.group, common.first - source.readers[i].first,
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

/// Rows of query heads in place of heads as they are, [sequences, kv_heads, group, d], as the readers of a
/// layer have them: folded with their maps (queries), or to be lifted with them (what is gathered).
class ReaderRows {
 public:
  /// plain: [sequences, kv_heads, group, d].
  ReaderRows(const Shape& shape, const CachedLayer& layer, float* plain)
      : shape_(shape), layer_(layer), plain_(plain) {
    for (const Source& source : layer.sources) {
      auto& of_source = own_.emplace_back();
      for (const Reader& reader : source.readers)
        of_source.emplace_back(reader.matrix.defined() ? new float[to_size(shape.sequences * row(reader))]
                                                       : nullptr);
    }
  }

  /// What meets a piece: [meeting.rows, meeting.columns], rows leading() apart.
  float* of(std::size_t source, std::int64_t sequence, const Meeting& meeting) {
    const Reader& own = layer_.sources[source].readers[meeting.reader];
    return meeting.skipped +
           (own.matrix.defined() ? own_[source][meeting.reader].get() + sequence * row(own) +
                                       meeting.place * shape_.group * own.count
                                 : plain_ + sequence * shape_.row() + meeting.head * shape_.group * shape_.d);
  }
  std::int64_t leading(std::size_t source, const Meeting& meeting) const {
    return layer_.sources[source].readers[meeting.reader].count;
  }

  /// Of one sequence, before something is gathered. Folding clears on its own.
  void clear(std::int64_t sequence) {
    for (std::size_t s = 0; s < own_.size(); ++s)
      for (std::size_t i = 0; i < own_[s].size(); ++i) {
        const std::int64_t count = row(layer_.sources[s].readers[i]);
        if (own_[s][i]) std::fill_n(own_[s][i].get() + sequence * count, count, 0.0F);
      }
  }

  void fold() {
    if (has_maps())
      in_parts([&](std::int64_t part, std::int64_t parts) {
        for_each_map([&](const Reader& reader, const float* map, const float* plain, float* own) {
          const Range some = share(reader.count, part, parts);
          for (std::int64_t s = 0; s < shape_.sequences; ++s)
            std::fill_n(own + s * row(reader) + some.begin, some.count, 0.0F);
          add_few_rows(plain, shape_.row(), shape_.sequences, map + some.begin, reader.count, some.count,
                       shape_.d, own + some.begin, row(reader));
        });
      });
  }

  void lift() {
    if (has_maps())
      in_parts([&](std::int64_t part, std::int64_t parts) {
        const Range some = share(shape_.d, part, parts);
        for_each_map([&](const Reader& reader, const float* map, float* plain, const float* own) {
          add_few_rows(own, row(reader), shape_.sequences, map + some.begin, shape_.d, some.count,
                       reader.count, plain + some.begin, shape_.row());
        });
      });
  }

 private:
  /// Of a sequence.
  std::int64_t row(const Reader& reader) const {
    return static_cast<std::int64_t>(reader.heads.size()) * shape_.group * reader.count;
  }

  bool has_maps() const {
    return std::any_of(layer_.sources.begin(), layer_.sources.end(), [](const Source& source) {
      return std::any_of(source.readers.begin(), source.readers.end(),
                         [](const Reader& reader) { return reader.matrix.defined(); });
    });
  }

  /// Calls use(reader, map: [count, d], of keys [d, count], a query head of the first sequence as it is, and
  /// as the reader has it).
  template <class Use>
  void for_each_map(const Use& use) {
    for (std::size_t s = 0; s < own_.size(); ++s)
      for (std::size_t i = 0; i < own_[s].size(); ++i) {
        const Reader& reader = layer_.sources[s].readers[i];
        if (!reader.matrix.defined()) continue;
        for (std::size_t h = 0; h < reader.heads.size(); ++h)
          for (std::int64_t g = 0; g < shape_.group; ++g) {
            const auto place = static_cast<std::int64_t>(h);
            use(reader, reader.matrix.data_ptr<float>() + place * reader.count * shape_.d,
                plain_ + (reader.heads[h] * shape_.group + g) * shape_.d,
                own_[s][i].get() + (place * shape_.group + g) * reader.count);
          }
      }
  }

  const Shape shape_;
  const CachedLayer& layer_;
  float* plain_;
  // [source][reader]: [sequences, heads of the reader, group, count]
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
  void add_all_scores(const float* q, const std::vector<SourcePieces>& sources, ReaderRows& folded) {
    add_bias_scores(q);
    add_exact_scores(q);
    for (std::size_t s = 0; s < sources.size(); ++s) add_scores(s, sources[s], folded);
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
  void add_all_values(const std::vector<SourcePieces>& sources, ReaderRows& gathered, float* out) {
    add_recent_values(out);
    add_bias_values(out);
    add_exact_values(out);
    for (std::size_t s = 0; s < sources.size(); ++s) add_values(s, sources[s], gathered);
  }

 private:
  float* scores(std::int64_t head) { return scratch_.scores.data() + head * shape_.group * total_; }
  std::int64_t at(std::int64_t head) const { return head * shape_.group * shape_.d; }

  void add_bias_scores(const float* q) {
    if (!keys_.layer->bias.defined()) return;
    Floats each(to_size(shape_.group));
    for (std::int64_t head = 0; head < shape_.kv_heads; ++head) {
      std::fill(each.begin(), each.end(), 0.0F);
      add_few_rows_transposed(q + at(head), shape_.d, shape_.group,
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
        add_few_rows(&sum, 1, 1, values_.layer->bias.data_ptr<float>() + head * shape_.d, shape_.d, shape_.d,
                     1, out + at(head) + g * shape_.d, shape_.d);
      }
  }

  /// exact: [tokens, kv_heads, d].
  void add_exact_scores(const float* q) {
    for (std::int64_t head = 0; exact_ > 0 && head < shape_.kv_heads; ++head)
      add_few_rows_transposed(q + at(head), shape_.d, shape_.group,
                              keys_.exact.data_ptr<float>() + head * shape_.d, shape_.kv_heads * shape_.d,
                              exact_, shape_.d, scores(head), total_);
  }

  void add_exact_values(float* out) {
    for (std::int64_t head = 0; exact_ > 0 && head < shape_.kv_heads; ++head)
      add_few_rows(scores(head), total_, shape_.group, values_.exact.data_ptr<float>() + head * shape_.d,
                   shape_.kv_heads * shape_.d, shape_.d, exact_, out + at(head), shape_.d);
  }

  float* stored_scores(const Meeting& meeting, std::int64_t token) {
    return scores(meeting.head) + exact_ + token;
  }

  void add_scores(std::size_t s, const SourcePieces& source, ReaderRows& folded) {
    auto& integers = scratch_.integers;
    integers.resize(std::max(integers.size(), source.pieces.size()));
    for (std::size_t p = 0; p < source.pieces.size(); ++p) {
      if (!source.pieces[p].coded) continue;
      const auto& meetings = source.meetings[p];
      integers[p].resize(std::max(integers[p].size(), meetings.size()));
      for (std::size_t i = 0; i < meetings.size(); ++i)
        integers[p][i].assign(folded.of(s, sequence_, meetings[i]), folded.leading(s, meetings[i]),
                              meetings[i].rows, meetings[i].columns);
    }
    for_each_piece(
        keys_.layer->sources[s], *keys_.pages[s], source.pieces, total_ - exact_, scratch_.columns,
        [&](std::size_t p, const Stretch<float>& z) {
          for (const Meeting& one : source.meetings[p])
            add_few_rows_transposed(folded.of(s, sequence_, one), folded.leading(s, one), one.rows,
                                    z.values + one.column, z.leading, z.tokens, one.columns,
                                    stored_scores(one, z.token), total_);
        },
        [&](std::size_t p, std::int64_t token, const CodedBlock& z) {
          for (std::size_t i = 0; i < source.meetings[p].size(); ++i)
            add_coded_transposed(integers[p][i], z, stored_scores(source.meetings[p][i], token), total_);
        });
  }

  void add_values(std::size_t s, const SourcePieces& source, ReaderRows& gathered) {
    for_each_piece(
        values_.layer->sources[s], *values_.pages[s], source.pieces, total_ - exact_, scratch_.columns,
        [&](std::size_t p, const Stretch<float>& z) {
          for (const Meeting& one : source.meetings[p])
            add_few_rows(stored_scores(one, z.token), total_, one.rows, z.values + one.column, z.leading,
                         one.columns, z.tokens, gathered.of(s, sequence_, one), gathered.leading(s, one));
        },
        [&](std::size_t p, std::int64_t token, const CodedBlock& z) {
          for (const Meeting& one : source.meetings[p])
            add_coded(stored_scores(one, token), total_, one.rows, z, gathered.of(s, sequence_, one),
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
      add_few_rows_transposed(q + row, shape_.d, 1, recent(keys_, head, place), shape_.d, 1, shape_.d, &score,
                              1);
    });
  }

  /// And takes their weights away.
  void add_recent_values(float* out) {
    for_each_recent([&](std::int64_t head, std::int64_t row, float& weight, std::int64_t place) {
      add_few_rows(&weight, 1, 1, recent(values_, head, place), shape_.d, shape_.d, 1, out + row, shape_.d);
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
  ReaderRows folded(shape, key_layer, rows), gathered(shape, value_layer, results);
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
