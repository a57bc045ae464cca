#include "model/decode_attention.h"

#include <algorithm>
#include <cmath>

#include "model/few_rows.h"
#include "model/row_kernels.h"
#include "model/stretch.h"

namespace headspan {
namespace {

std::size_t to_size(std::int64_t n) { return static_cast<std::size_t>(n); }

/// Row g * queries + i of a KV head is query i of the g-th query head that reads it.
struct Shape {
  std::int64_t queries;
  std::int64_t kv_heads;
  std::int64_t rows;  // of a KV head
  std::int64_t d;
  std::int64_t total;  // tokens that the last query sees
  std::int64_t exact;  // of them, the first that are stored as they are
};

using Floats = std::vector<float>;

class FewQueries {
 public:
  FewQueries(const Shape& shape, const std::vector<std::int64_t>& seen, const StreamView& keys,
             const StreamView& values)
      : shape_(shape), seen_(seen), keys_(keys), values_(values) {}

  /// log_sum: null where it is not asked for.
  void run(const float* q, float* out, float* log_sum) {
    take_rows(q);
    scores_.assign(to_size(shape_.kv_heads * shape_.rows * shape_.total), 0);
    if (keys_.layer->bias.defined()) add_bias_scores();
    add_exact_scores();
    for (std::size_t s = 0; s < keys_.layer->sources.size(); ++s) add_scores(s);
    replace_recent_scores();
    softmax(log_sum);
    gathered_.assign(rows_.size(), 0);
    add_recent_values();
    if (values_.layer->bias.defined()) add_bias_values();
    add_exact_values();
    for (std::size_t s = 0; s < values_.layer->sources.size(); ++s) add_values(s);
    hand_out(out);
  }

 private:
  float* row(std::int64_t head) { return rows_.data() + head * shape_.rows * shape_.d; }
  float* gathered(std::int64_t head) { return gathered_.data() + head * shape_.rows * shape_.d; }
  float* scores(std::int64_t head) { return scores_.data() + head * shape_.rows * shape_.total; }
  const float* bias(const StreamView& view, std::int64_t head) const {
    return view.layer->bias.data_ptr<float>() + head * shape_.d;
  }

  /// Calls use(row's place among the KV head's, its place in q and in the result) for every row of a KV head.
  template <class Use>
  void for_each_row(std::int64_t head, const Use& use) const {
    const std::int64_t group = shape_.rows / shape_.queries;
    for (std::int64_t g = 0; g < group; ++g)
      for (std::int64_t i = 0; i < shape_.queries; ++i)
        use(g * shape_.queries + i, ((i * shape_.kv_heads + head) * group + g) * shape_.d);
  }

  void take_rows(const float* q) {
    const auto scale = static_cast<float>(1 / std::sqrt(static_cast<double>(shape_.d)));
    rows_.resize(to_size(shape_.kv_heads * shape_.rows * shape_.d));
    for (std::int64_t head = 0; head < shape_.kv_heads; ++head)
      for_each_row(head, [&](std::int64_t place, std::int64_t from) {
        for (std::int64_t c = 0; c < shape_.d; ++c) row(head)[place * shape_.d + c] = q[from + c] * scale;
      });
  }

  void hand_out(float* out) {
    for (std::int64_t head = 0; head < shape_.kv_heads; ++head)
      for_each_row(head, [&](std::int64_t place, std::int64_t to) {
        std::copy_n(gathered(head) + place * shape_.d, shape_.d, out + to);
      });
  }

  void add_bias_scores() {
    for (std::int64_t head = 0; head < shape_.kv_heads; ++head) {
      Floats each(to_size(shape_.rows), 0);
      add_few_rows_transposed(row(head), shape_.d, shape_.rows, bias(keys_, head), shape_.d, 1, shape_.d,
                              each.data(), 1);
      for (std::int64_t r = 0; r < shape_.rows; ++r)
        std::fill_n(scores(head) + r * shape_.total + shape_.exact, shape_.total - shape_.exact,
                    each[to_size(r)]);
    }
  }

  void add_bias_values() {
    for (std::int64_t head = 0; head < shape_.kv_heads; ++head)
      for (std::int64_t r = 0; r < shape_.rows; ++r) {
        const float* weights = scores(head) + r * shape_.total;
        float sum = 0;
#pragma omp simd reduction(+ : sum)
        for (std::int64_t t = shape_.exact; t < shape_.total; ++t) sum += weights[t];
        add_few_rows(&sum, 1, 1, bias(values_, head), shape_.d, shape_.d, 1, gathered(head) + r * shape_.d,
                     shape_.d);
      }
  }

  /// exact: [tokens, kv_heads, d].
  void add_exact_scores() {
    for (std::int64_t head = 0; shape_.exact > 0 && head < shape_.kv_heads; ++head)
      add_few_rows_transposed(row(head), shape_.d, shape_.rows,
                              keys_.exact.data_ptr<float>() + head * shape_.d, shape_.kv_heads * shape_.d,
                              shape_.exact, shape_.d, scores(head), shape_.total);
  }

  void add_exact_values() {
    for (std::int64_t head = 0; shape_.exact > 0 && head < shape_.kv_heads; ++head)
      add_few_rows(scores(head), shape_.total, shape_.rows, values_.exact.data_ptr<float>() + head * shape_.d,
                   shape_.kv_heads * shape_.d, shape_.d, shape_.exact, gathered(head), shape_.d);
  }

  /// The queries of a reader's heads, folded with their maps: [heads * rows, count].
  Floats fold(const Reader& reader) {
    const auto heads = static_cast<std::int64_t>(reader.heads.size());
    Floats folded(to_size(heads * shape_.rows * reader.count), 0);
    for (std::int64_t i = 0; i < heads; ++i) {
      float* own = folded.data() + i * shape_.rows * reader.count;
      const float* from = row(reader.heads[to_size(i)]);
      if (reader.matrix.defined())
        add_few_rows_transposed(from, shape_.d, shape_.rows, matrix(reader, i), shape_.d, reader.count,
                                shape_.d, own, reader.count);
      else
        std::copy_n(from, shape_.rows * shape_.d, own);
    }
    return folded;
  }

  const float* matrix(const Reader& reader, std::int64_t place) const {
    return reader.matrix.data_ptr<float>() + place * reader.count * shape_.d;
  }

  void add_scores(std::size_t s) {
    const Source& source = keys_.layer->sources[s];
    std::vector<Floats> folded;
    for (const Reader& reader : source.readers) folded.push_back(fold(reader));
    for_each_stretch<float>(
        source, *keys_.pages[s], 0, shape_.total - shape_.exact, [&](const Stretch<float>& z) {
          for (std::size_t i = 0; i < folded.size(); ++i) {
            const Reader& reader = source.readers[i];
            for_each_run(reader, [&](std::int64_t place, std::int64_t head, std::int64_t count) {
              add_few_rows_transposed(folded[i].data() + place * shape_.rows * reader.count, reader.count,
                                      count * shape_.rows, z.values + reader.first, z.leading, z.tokens,
                                      reader.count, scores(head) + shape_.exact + z.token, shape_.total);
            });
          }
        });
  }

  void add_values(std::size_t s) {
    const Source& source = values_.layer->sources[s];
    std::vector<Floats> stored;  // [heads * rows, count] of each reader
    for (const Reader& reader : source.readers)
      stored.emplace_back(reader.heads.size() * to_size(shape_.rows * reader.count), 0.0F);
    for_each_stretch<float>(
        source, *values_.pages[s], 0, shape_.total - shape_.exact, [&](const Stretch<float>& z) {
          for (std::size_t i = 0; i < stored.size(); ++i) {
            const Reader& reader = source.readers[i];
            for_each_run(reader, [&](std::int64_t place, std::int64_t head, std::int64_t count) {
              add_few_rows(scores(head) + shape_.exact + z.token, shape_.total, count * shape_.rows,
                           z.values + reader.first, z.leading, reader.count, z.tokens,
                           stored[i].data() + place * shape_.rows * reader.count, reader.count);
            });
          }
        });
    for (std::size_t i = 0; i < stored.size(); ++i) lift(source.readers[i], stored[i]);
  }

  void lift(const Reader& reader, const Floats& stored) {
    for (std::size_t i = 0; i < reader.heads.size(); ++i) {
      const auto place = static_cast<std::int64_t>(i);
      const float* own = stored.data() + place * shape_.rows * reader.count;
      float* to = gathered(reader.heads[i]);
      if (reader.matrix.defined())
        add_few_rows(own, reader.count, shape_.rows, matrix(reader, place), shape_.d, shape_.d, reader.count,
                     to, shape_.d);
      else
        for (std::int64_t c = 0; c < shape_.rows * shape_.d; ++c) to[c] += own[c];
    }
  }

  /// Calls use(row, token, the token among the recent ones) where a query meets a token as it is.
  template <class Use>
  void for_each_recent(const Use& use) const {
    if (!keys_.recent.defined()) return;
    for (std::int64_t r = 0; r < shape_.rows; ++r) {
      const std::int64_t own = seen(r) - 1;
      for (std::int64_t t = std::max(keys_.recent_begin, own - keys_.exact_recent + 1); t < shape_.total; ++t)
        use(r, t, t - keys_.recent_begin);
    }
  }

  void replace_recent_scores() {
    for (std::int64_t head = 0; head < shape_.kv_heads; ++head)
      for_each_recent([&](std::int64_t r, std::int64_t token, std::int64_t place) {
        float* score = scores(head) + r * shape_.total + token;
        *score = 0;
        add_few_rows_transposed(row(head) + r * shape_.d, shape_.d, 1, recent(keys_, head, place), shape_.d,
                                1, shape_.d, score, 1);
      });
  }

  /// And takes their weights away.
  void add_recent_values() {
    for (std::int64_t head = 0; head < shape_.kv_heads; ++head)
      for_each_recent([&](std::int64_t r, std::int64_t token, std::int64_t place) {
        float& weight = scores(head)[r * shape_.total + token];
        add_few_rows(&weight, 1, 1, recent(values_, head, place), shape_.d, shape_.d, 1,
                     gathered(head) + r * shape_.d, shape_.d);
        weight = 0;
      });
  }

  const float* recent(const StreamView& view, std::int64_t head, std::int64_t place) const {
    return view.recent.data_ptr<float>() + (place * shape_.kv_heads + head) * shape_.d;
  }

  /// By the row of a query.
  std::int64_t seen(std::int64_t r) const { return seen_[to_size(r % shape_.queries)]; }

  void softmax(float* log_sum) {
    for (std::int64_t head = 0; head < shape_.kv_heads; ++head)
      for_each_row(head, [&](std::int64_t r, std::int64_t to) {
        float* own = scores(head) + r * shape_.total;
        const float sum = softmax_row(own, seen(r));
        if (log_sum != nullptr) log_sum[to / shape_.d] = sum;
        std::fill(own + seen(r), own + shape_.total, 0.0F);
      });
  }

  const Shape shape_;
  const std::vector<std::int64_t>& seen_;
  const StreamView& keys_;
  const StreamView& values_;
  Floats rows_;      // [kv_heads, rows, d], queries times the scale
  Floats scores_;    // [kv_heads, rows, total], weights after the softmax
  Floats gathered_;  // [kv_heads, rows, d]
};

}  // namespace

void attend_few(const at::Tensor& q, const std::vector<std::int64_t>& seen, const StreamView& keys,
                const StreamView& values, const PartialAttention& out) {
  const std::int64_t queries = q.size(0), kv_heads = keys.layer->kv_heads, total = seen.back();
  const Shape shape{queries,   kv_heads, q.size(1) / kv_heads * queries,
                    q.size(2), total,    keys.exact.defined() ? std::min(keys.exact.size(0), total) : 0};
  FewQueries(shape, seen, keys, values)
      .run(q.data_ptr<float>(), out.values.data_ptr<float>(),
           out.log_sum.defined() ? out.log_sum.data_ptr<float>() : nullptr);
}

}  // namespace headspan
