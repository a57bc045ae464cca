// The golden files that tests/model/make_golden.py made with transformers, and the ranks as the tests use
// them.
#pragma once

#include <string>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "dist/comm/mpi.h"
#include "io/checkpoint/checkpoint.h"
#include "io/checkpoint/safetensors.h"
#include "model/forward/transformer.h"

namespace headspan {

inline std::string golden_folder(const std::string& model) {
  return std::string(HEADSPAN_TEST_DATA) + "/golden/" + model;
}

/// Models of every type, to instantiate tests with.
inline auto golden_models() {
  return testing::Values("olmo2_mha", "olmo2_gqa", "llama_gqa", "llama3_scaled", "falcon3", "qwen3",
                         "qwen3_bias", "olmo2_sharded_bf16", "olmo", "olmo_clipped", "olmo3", "smollm3",
                         "qwen2", "qwen2_window", "seed_oss", "mistral", "mistral_window", "gpt_neox",
                         "gpt_neox_serial", "apertus", "phi3", "phi3_long", "gemma2", "gemma3");
}

/// A tensor of a safetensors file.
inline at::Tensor read_tensor(const SafetensorsFile& file, const std::string& name) {
  const TensorEntry& entry = file.tensors().at(name);
  const at::ScalarType dtype = entry.dtype == "F64"    ? at::kDouble
                               : entry.dtype == "F32"  ? at::kFloat
                               : entry.dtype == "BF16" ? at::kBFloat16
                                                       : at::kLong;
  at::Tensor values = at::empty(entry.shape, dtype);
  file.read(entry, 0, entry.bytes(), values.data_ptr());
  return values;
}

/// All sequences of a golden file, or those with index % parts == part.
struct Golden {
  SafetensorsFile file;
  PackedBatch batch;
  at::Tensor rows;  // of the golden tensors that belong to the batch

  explicit Golden(const std::string& model, std::int64_t part = 0, std::int64_t parts = 1)
      : file(SafetensorsFile::open(golden_folder(model) + "/golden.safetensors")) {
    const at::Tensor tokens = read_tensor(file, "tokens"), lengths = read_tensor(file, "lengths");
    std::vector<std::int64_t> kept;
    std::int64_t begin = 0;
    for (std::int64_t i = 0; i < lengths.size(0); ++i) {
      const auto length = lengths[i].item<std::int64_t>();
      if (i % parts == part) batch.lengths.push_back(length);
      for (std::int64_t t = begin; i % parts == part && t < begin + length; ++t) kept.push_back(t);
      begin += length;
    }
    for (const std::int64_t t : kept) batch.tokens.push_back(tokens[t].item<std::int64_t>());
    rows = at::tensor(kept, at::kLong);
  }

  at::Tensor operator[](const std::string& name) const {
    return read_tensor(file, name).index_select(0, rows);
  }
};

/// The ranks of the world as data-parallel rows of `tensor_parallel` ranks.
struct Layout {
  Comm world = Comm::duplicate(MPI_COMM_WORLD);
  std::unique_ptr<DeviceComm> row;
  const DeviceComm& tensor_parallel;
  Comm data_parallel;

  explicit Layout(int size)
      : row(make_device_comm(world.split(world.rank() / size, world.rank()), {})),
        tensor_parallel(*row),
        data_parallel(world.split(world.rank() % size, world.rank())) {}
};

/// max |a - b| / max |whole|, where b is the part of `whole` that a rank has.
inline double relative_error(const at::Tensor& a, const at::Tensor& b, const at::Tensor& whole) {
  return ((a.to(at::kDouble) - b.to(at::kDouble)).abs().max() / whole.to(at::kDouble).abs().max())
      .item<double>();
}

/// max |a - b| / max |b|.
inline double relative_error(const at::Tensor& a, const at::Tensor& b) { return relative_error(a, b, b); }

}  // namespace headspan
