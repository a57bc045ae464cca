#include "model/weights/weight_loader.h"

#include <algorithm>
#include <array>
#include <future>
#include <set>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "base/checked.h"
#include "base/printable.h"
#include "base/range.h"
#include "dist/comm/agreement.h"
#include "model/weights/large_tensor.h"

namespace headspan {
namespace {

constexpr std::int64_t kChunkBytes = std::int64_t{8} << 20;    // read, sent and converted at a time
constexpr std::int64_t kPieceBytes = std::int64_t{256} << 10;  // read and checked at a time by a thread

struct StoredType {
  const char* name;  ///< in safetensors
  Dtype dtype;
};
constexpr std::array<StoredType, 4> kStoredTypes{
    {{"F64", Dtype::float64}, {"F32", Dtype::float32}, {"BF16", Dtype::bfloat16}, {"F16", Dtype::float16}}};

Dtype stored_type(const Checkpoint& checkpoint, const std::string& name) {
  const std::string& dtype = checkpoint.entry(name).dtype;
  for (const StoredType& known : kStoredTypes)
    if (dtype == known.name) return known.dtype;
  throw InputError(checkpoint.file_of(name), name + ".dtype", dtype, "is not supported",
                   "F64, F32, BF16 and F16 are");
}

/// Returns the name under which the checkpoint has the tensor of a slice; its first name if it has none.
const std::string& stored_name(const Checkpoint& checkpoint, const WeightSlice& slice) {
  const bool other = !checkpoint.has(slice.name) && !slice.other_name.empty();
  return other && checkpoint.has(slice.other_name) ? slice.other_name : slice.name;
}

std::string text_of(const std::vector<std::int64_t>& shape) {
  std::string text;
  for (const std::int64_t size : shape) text += (text.empty() ? "" : ", ") + std::to_string(size);
  return "[" + text + "]";
}

/// Returns whether a tensor holds what config.json determines too, as rotary frequencies in some old files.
bool is_ignored(const ModelConfig& config, const std::string& name) {
  return std::any_of(config.names.ignored.begin(), config.names.ignored.end(), [&](const std::string& end) {
    const std::string whole = "." + end;
    return name.size() > whole.size() && name.compare(name.size() - whole.size(), whole.size(), whole) == 0;
  });
}

/// Refuses tensors of layers that the model does not have: a norm or a bias that is silently ignored would
/// falsify every result.
void refuse_unexpected(const Checkpoint& checkpoint, const ModelConfig& config) {
  std::set<std::string> expected;
  for (const WeightSlice& slice :
       allocate_weights(config, {config.layers, true}, {}, at::kByte, at::kMeta).slices)
    expected.insert(slice.name);
  for (const std::string& name : checkpoint.names())
    if (name.rfind(config.names.layers, 0) == 0 && expected.count(name) == 0 && !is_ignored(config, name))
      throw InputError(checkpoint.file_of(name), printable(name), "", "is not expected",
                       "no " + config.model_type + " of " + std::to_string(config.layers) +
                           " layers has it with the biases that config.json announces");
}

/// Checks the tensors of `slices`, which may be those of any shard.
void check_tensors(const Checkpoint& checkpoint, const ModelConfig& config,
                   const std::vector<WeightSlice>& slices) {
  for (const WeightSlice& slice : slices) {
    const std::string& name = stored_name(checkpoint, slice);
    if (!checkpoint.has(name))
      throw InputError(checkpoint.folder(), name, "", "is missing", "config.json asks for this tensor");
    stored_type(checkpoint, name);
    const auto& shape = checkpoint.entry(name).shape;
    if (shape != slice.shape)
      throw InputError(checkpoint.file_of(name), name + ".shape", text_of(shape), "does not fit config.json",
                       "which asks for " + text_of(slice.shape));
  }
  refuse_unexpected(checkpoint, config);
}

/// Returns whether some number has all bits of the exponent, `mask`, set, that is, is NaN or infinity.
template <class Bits>
bool any_not_finite(const void* numbers, std::int64_t count, Bits mask) {
  const auto* bits = static_cast<const Bits*>(numbers);
  Bits found = 0;
  for (std::int64_t i = 0; i < count; ++i) found |= static_cast<Bits>((bits[i] & mask) == mask);
  return found != 0;
}

bool any_not_finite(const void* numbers, std::int64_t count, at::ScalarType type) {
  switch (type) {
    case at::kDouble:
      return any_not_finite<std::uint64_t>(numbers, count, 0x7ff0000000000000u);
    case at::kFloat:
      return any_not_finite<std::uint32_t>(numbers, count, 0x7f800000u);
    case at::kBFloat16:
      return any_not_finite<std::uint16_t>(numbers, count, 0x7f80u);
    default:
      return any_not_finite<std::uint16_t>(numbers, count, 0x7c00u);
  }
}

/// Some rows of a slice. `raw` holds them as stored; it is `values` itself if that is in host memory and of
/// the stored dtype.
struct Chunk {
  const WeightSlice* slice;
  std::int64_t row;  // the first, within the slice
  at::Tensor raw;
  at::Tensor values;
  bool ends_slice;
};

/// Returns the first `bytes` of a staging buffer, which grows if it is too small.
at::Tensor staged(at::Tensor& buffer, std::int64_t bytes, bool pinned) {
  if (!buffer.defined() || buffer.numel() < bytes) {
    const std::int64_t size = std::max(bytes, kChunkBytes);
    buffer = pinned ? at::empty({size}, at::dtype(at::kByte).pinned_memory(true))
                    : large_tensor({size}, at::kByte);
  }
  return buffer.narrow(0, 0, bytes);
}

/// Cuts the slices into chunks, at least one for each. Chunks that are converted or go to a GPU alternate
/// between two staging buffers, pinned for a GPU.
std::vector<Chunk> make_chunks(const Checkpoint& checkpoint, const Weights& weights) {
  std::vector<Chunk> chunks;
  std::array<at::Tensor, 2> staging;
  for (const WeightSlice& slice : weights.slices) {
    const at::ScalarType stored = scalar_type(stored_type(checkpoint, stored_name(checkpoint, slice)));
    const std::int64_t row_bytes = slice.columns.count * static_cast<std::int64_t>(c10::elementSize(stored));
    const std::int64_t step = std::max<std::int64_t>(1, kChunkBytes / std::max<std::int64_t>(1, row_bytes));
    for (std::int64_t row = 0; row == 0 || row < slice.rows.count; row += step) {
      const std::int64_t count = std::min(step, slice.rows.count - row);
      const at::Tensor values = slice.values.narrow(0, row, count);
      at::Tensor raw = values;
      if (stored != values.scalar_type() || !values.is_cpu())
        raw = staged(staging[chunks.size() % 2], count * row_bytes, values.is_cuda())
                  .view(stored)
                  .view(values.sizes());
      chunks.push_back({&slice, row, raw, values, row + count == slice.rows.count});
    }
  }
  return chunks;
}

std::int64_t row_bytes_of(const Chunk& chunk) {
  return chunk.slice->columns.count * static_cast<std::int64_t>(chunk.raw.element_size());
}

/// Reads some rows of a chunk. Each piece is still in the cache when it is checked.
void read_rows(const Checkpoint& checkpoint, const Chunk& chunk, const Range& rows) {
  const WeightSlice& slice = *chunk.slice;
  const std::string& name = stored_name(checkpoint, slice);
  const auto item = static_cast<std::int64_t>(chunk.raw.element_size());
  const std::int64_t row_bytes = row_bytes_of(chunk);
  const std::int64_t stored_row_bytes = slice.shape.size() == 2 ? slice.shape[1] * item : item;
  // Reads rows from `row` on, which lie side by side in the file.
  const auto read = [&](std::int64_t row, std::int64_t count, char* out) {
    const std::int64_t begin =
        (slice.rows.first + chunk.row + row) * stored_row_bytes + slice.columns.first * item;
    checkpoint.read(name, begin, count * row_bytes, out);
  };
  const std::int64_t step = std::max<std::int64_t>(1, kPieceBytes / std::max<std::int64_t>(1, row_bytes));
  for (std::int64_t row = rows.first, end = rows.first + rows.count; row < end; row += step) {
    const std::int64_t count = std::min(step, end - row);
    char* const out = static_cast<char*>(chunk.raw.data_ptr()) + row * row_bytes;
    if (row_bytes == stored_row_bytes)
      read(row, count, out);
    else
      for (std::int64_t i = 0; i < count; ++i) read(row + i, 1, out + i * row_bytes);
    if (any_not_finite(out, count * slice.columns.count, chunk.raw.scalar_type()))
      throw InputError(checkpoint.file_of(name), name, "", "holds NaN or infinity",
                       "fetch or save the checkpoint again");
  }
}

/// Rows of a chunk that threads read. Waits for them when it is destroyed.
class Reading {
 public:
  Reading() = default;
  Reading(const Checkpoint& checkpoint, const Chunk& chunk, const Range& rows) {
    const std::int64_t pieces = rows.count * row_bytes_of(chunk) / kPieceBytes;
    const std::int64_t threads = std::clamp<std::int64_t>(pieces, 1, at::get_num_threads());
    for (std::int64_t i = 0; i < threads; ++i) {
      const Range part = range_of(rows.count, threads, i);
      parts_.push_back(std::async(std::launch::async,
                                  [&checkpoint, &chunk, first = rows.first + part.first, count = part.count] {
                                    read_rows(checkpoint, chunk, {first, count});
                                  }));
    }
  }

  /// Waits for all threads. Throws what the first of them has thrown.
  void wait() {
    for (std::future<void>& part : parts_) part.wait();
    for (std::future<void>& part : parts_) part.get();
  }

 private:
  std::vector<std::future<void>> parts_;
};

/// Returns the part of a chunk that a data-parallel rank reads.
Range part_of(const Chunk& chunk, const Comm& data_parallel, int rank) {
  return range_of(chunk.raw.size(0), data_parallel.size(), rank);
}

/// Sends each part of a chunk to the ranks that have not read it. Collective over both communicators.
void share(const Chunk& chunk, const Comm& tensor_parallel, const Comm& data_parallel) {
  const std::int64_t row_bytes = row_bytes_of(chunk);
  std::vector<Bytes<char>> parts;
  for (int rank = 0; rank < data_parallel.size(); ++rank) {
    const Range rows = part_of(chunk, data_parallel, rank);
    parts.push_back(
        {static_cast<char*>(chunk.raw.data_ptr()) + rows.first * row_bytes, rows.count * row_bytes});
  }
  const Bytes<char> mine = parts[to_size(data_parallel.rank())];
  if (chunk.slice->shared) tensor_parallel.broadcast(mine.data, mine.count, 0);
  std::vector<Bytes<const char>> sent(parts.size(), {mine.data, mine.count});
  sent[to_size(data_parallel.rank())].count = 0;  // is in its place
  data_parallel.exchange(sent, parts);
}

/// Agrees over all ranks that load the model: those of each tensor-parallel group, then those that hold the
/// same shard. Collective over both communicators.
void agree_all(const Comm& tensor_parallel, const Comm& data_parallel, const std::function<void()>& step) {
  agree(data_parallel, [&] { agree(tensor_parallel, step); });
}

}  // namespace

void check_weights(const Checkpoint& checkpoint, const ModelConfig& config, Extent extent) {
  check_tensors(checkpoint, config, allocate_weights(config, extent, {}, at::kByte, at::kMeta).slices);
}

WeightReading weight_reading(const Comm& tensor_parallel, const Comm& data_parallel) {
  const auto share_node = [](const Comm& comm) { return comm.split_shared().size() == comm.size(); };
  const bool rows = share_node(tensor_parallel), columns = share_node(data_parallel);
  const double together = tensor_parallel.min(data_parallel.min(rows && columns ? 1.0 : 0.0));
  return together > 0 ? WeightReading::all : WeightReading::divided;
}

void load_weights(const Checkpoint& checkpoint, const ModelConfig& config, Weights& weights,
                  const Comm& tensor_parallel, const Comm& data_parallel, WeightReading reading) {
  agree_all(tensor_parallel, data_parallel, [&] { check_tensors(checkpoint, config, weights.slices); });
  const std::vector<Chunk> chunks = make_chunks(checkpoint, weights);
  const auto read = [&](std::size_t i) {
    if (reading == WeightReading::all) return Reading(checkpoint, chunks[i], {0, chunks[i].raw.size(0)});
    const bool mine = !chunks[i].slice->shared || tensor_parallel.is_root();
    return mine ? Reading(checkpoint, chunks[i], part_of(chunks[i], data_parallel, data_parallel.rank()))
                : Reading();
  };
  Reading ahead = read(0);
  std::exception_ptr failure;
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    const Chunk& chunk = chunks[i];
    try {
      ahead.wait();
    } catch (...) {
      failure = std::current_exception();
    }
    if (i + 1 < chunks.size()) ahead = read(i + 1);
    if (reading == WeightReading::divided) share(chunk, tensor_parallel, data_parallel);
    if (!chunk.raw.is_same(chunk.values)) chunk.values.copy_(chunk.raw);
    if (!chunk.ends_slice) continue;
    agree_all(tensor_parallel, data_parallel, [&] {
      if (failure) std::rethrow_exception(failure);
    });
  }
}

at::Tensor read_slice(const Checkpoint& checkpoint, const WeightSlice& slice) {
  std::vector<std::int64_t> shape{slice.rows.count};
  if (slice.shape.size() == 2) shape.push_back(slice.columns.count);
  at::Tensor values = at::empty(shape, scalar_type(stored_type(checkpoint, stored_name(checkpoint, slice))));
  read_rows(checkpoint, {&slice, 0, values, values, true}, {0, slice.rows.count});
  return values;
}

Dtype forward_dtype(std::optional<Dtype> asked, const ModelConfig& config, const Checkpoint* checkpoint) {
  if (asked) return *asked;
  if (checkpoint != nullptr) return stored_type(*checkpoint, config.names.embedding + ".weight");
  return value_of(dtype_words(), config.dtype).value_or(Dtype::float32);
}

Dtype weight_dtype(Dtype forward, const ModelConfig& config, const Checkpoint* checkpoint) {
  if (forward != Dtype::float32) return forward;
  if (checkpoint == nullptr) return config.dtype == dtype_name(Dtype::bfloat16) ? Dtype::bfloat16 : forward;
  const Weights names = allocate_weights(config, {config.layers, true}, {}, at::kByte, at::kMeta);
  const bool all = std::all_of(names.slices.begin(), names.slices.end(), [&](const WeightSlice& slice) {
    const std::string& name = stored_name(*checkpoint, slice);
    return slice.shape.size() < 2 || !checkpoint->has(name) ||
           stored_type(*checkpoint, name) == Dtype::bfloat16;
  });
  return all ? Dtype::bfloat16 : forward;
}

}  // namespace headspan
