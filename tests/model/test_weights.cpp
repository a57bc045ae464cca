// Weights: what is read, converted, refused and drawn, on every way to lay out the ranks.
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>

#include <gtest/gtest.h>

#include "base/range.h"
#include "dist/comm/agreement.h"
#include "model/golden.h"
#include "model/types/read_config.h"
#include "model/weights/weight_initializer.h"
#include "model/weights/weight_loader.h"
#include "model/weights/weights.h"

namespace headspan {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

/// A copy of a golden checkpoint of one file, made by rank 0 for all, that a test may spoil.
class SpoiledCheckpoint {
 public:
  explicit SpoiledCheckpoint(const Comm& world) : world_(world) {
    folder_ = world.broadcast(testing::TempDir() + "spoiled." + std::to_string(getpid()), 0);
  }
  ~SpoiledCheckpoint() {
    world_.barrier();
    if (world_.is_root()) fs::remove_all(folder_);
  }

  /// Rewrites the file: `edit` sees its header and data. Collective.
  void make(const std::string& model, const std::function<void(Json& header, std::string& data)>& edit) {
    if (world_.is_root()) {
      fs::create_directory(folder_);
      fs::copy(golden_folder(model) + "/config.json", folder_);
      std::ifstream in(golden_folder(model) + "/model.safetensors", std::ios::binary);
      const std::string bytes((std::istreambuf_iterator<char>(in)), {});
      std::uint64_t length = 0;
      bytes.copy(reinterpret_cast<char*>(&length), 8);
      Json header = Json::parse(bytes.substr(8, length));
      std::string data = bytes.substr(8 + length);
      edit(header, data);
      const std::string text = header.dump();
      length = text.size();
      std::ofstream out(folder_ + "/model.safetensors", std::ios::binary);
      out.write(reinterpret_cast<const char*>(&length), 8) << text << data;
    }
    world_.barrier();
  }

  const std::string& folder() const { return folder_; }

 private:
  const Comm& world_;
  std::string folder_;
};

/// The line of the AgreedError that loading causes on every rank, or "".
std::string load_error(const std::string& folder, const Layout& layout, Extent extent) {
  const ModelConfig config = read_model_config(folder + "/config.json");
  const Checkpoint checkpoint = Checkpoint::open(folder);
  try {
    Transformer::load(config, checkpoint, {Dtype::float32, extent}, layout.tensor_parallel,
                      layout.data_parallel);
  } catch (const AgreedError& error) {
    EXPECT_EQ(error.exit_code(), 2);
    return error.what();
  }
  return "";
}

std::string spoiled_error(const std::function<void(Json&, std::string&)>& edit, Extent extent = {2, true}) {
  const Comm world = Comm::duplicate(MPI_COMM_WORLD);
  const Layout layout(world.size() > 1 ? 2 : 1);
  SpoiledCheckpoint spoiled(world);
  spoiled.make("olmo2_mha", edit);
  const std::string line = load_error(spoiled.folder(), layout, extent);
  const std::size_t start = line.find(spoiled.folder());
  return start == 0 ? line.substr(spoiled.folder().size()) : line;
}

void append_tensor(Json& header, std::string& data, const std::string& name, std::int64_t count) {
  const auto begin = data.size();
  data.append(static_cast<std::size_t>(count) * 4, '\0');
  header[name] = {{"dtype", "F32"}, {"shape", {count}}, {"data_offsets", {begin, data.size()}}};
}

/// Takes a tensor out of the header by giving it a name that no model asks for.
void rename_tensor(Json& header, const std::string& name, const std::string& to) {
  header[to] = header.at(name);
  header.erase(name);
}

/// Returns the weights of this rank in float32, and how many bytes it read for them.
std::pair<Weights, std::int64_t> load_slices(const std::string& folder, const Layout& layout,
                                             WeightReading reading) {
  const ModelConfig config = read_model_config(folder + "/config.json");
  const Checkpoint checkpoint = Checkpoint::open(folder);
  const Comm& row = layout.tensor_parallel.host();
  Weights weights =
      allocate_weights(config, {config.layers, true}, {row.rank(), row.size()}, at::kFloat, at::kCPU);
  load_weights(checkpoint, config, weights, row, layout.data_parallel, reading);
  return {std::move(weights), checkpoint.bytes_read()};
}

TEST(Weights, are_read_once_by_each_node_or_by_each_rank) {
  const Comm world = Comm::duplicate(MPI_COMM_WORLD);
  for (const std::string model : {"olmo2_gqa", "qwen3", "olmo2_sharded_bf16"}) {
    for (const int size : {1, 2}) {
      if (world.size() % size != 0) continue;
      const Layout layout(size);
      const Checkpoint checkpoint = Checkpoint::open(golden_folder(model));
      std::int64_t stored = 0, needed = 0;
      for (const std::string& name : checkpoint.names()) stored += checkpoint.entry(name).bytes();

      const auto [ours, read_by_rank] = load_slices(golden_folder(model), layout, WeightReading::all);
      auto [shared, read] = load_slices(golden_folder(model), layout, WeightReading::divided);

      world.sum(&read, 1);
      EXPECT_EQ(read, stored) << model << " tensor parallel " << size;
      for (std::size_t i = 0; i < ours.slices.size(); ++i) {
        const WeightSlice& slice = ours.slices[i];
        const auto& entry = checkpoint.entry(slice.name);
        needed +=
            slice.values.numel() * (entry.bytes() / std::accumulate(entry.shape.begin(), entry.shape.end(),
                                                                    std::int64_t{1}, std::multiplies<>()));
        EXPECT_TRUE(at::equal(slice.values, shared.slices[i].values)) << slice.name;
      }
      EXPECT_EQ(read_by_rank, needed) << model << " tensor parallel " << size;
    }
  }
}

TEST(Weights, the_output_layer_of_gpt_neox_has_two_names) {
  const Comm world = Comm::duplicate(MPI_COMM_WORLD);
  const Layout layout(1);
  SpoiledCheckpoint renamed(world);
  renamed.make("gpt_neox", [](Json& header, std::string&) {
    const bool is_old = header.contains("embed_out.weight");
    rename_tensor(header, is_old ? "embed_out.weight" : "lm_head.weight",
                  is_old ? "lm_head.weight" : "embed_out.weight");
  });

  const Weights expected = load_slices(golden_folder("gpt_neox"), layout, WeightReading::all).first;
  const Weights found = load_slices(renamed.folder(), layout, WeightReading::all).first;

  for (std::size_t i = 0; i < expected.slices.size(); ++i)
    EXPECT_TRUE(at::equal(found.slices[i].values, expected.slices[i].values)) << expected.slices[i].name;
}

TEST(Weights, ranks_of_one_node_do_not_divide_the_reading) {
  const Layout layout(1);

  EXPECT_EQ(weight_reading(layout.tensor_parallel.host(), layout.data_parallel), WeightReading::all);
}

TEST(Weights, only_what_captures_need_is_read) {
  const Layout layout(1);
  const ModelConfig config = read_model_config(golden_folder("olmo2_mha") + "/config.json");
  const Checkpoint checkpoint = Checkpoint::open(golden_folder("olmo2_mha"));

  Transformer::load(config, checkpoint, {Dtype::float32, {1, false}}, layout.tensor_parallel,
                    layout.data_parallel);

  const std::int64_t embedding = 64 * 32, projections = 3 * 32 * 32, norms = 2 * 32;
  EXPECT_EQ(checkpoint.bytes_read(), 4 * (embedding + projections + norms));
  EXPECT_EQ(weight_bytes(config, {1, false}, 1, Dtype::float32), 4 * (embedding + projections + norms));
  EXPECT_EQ(weight_bytes(config, {1, false}, 2, Dtype::float32), 2 * (embedding + projections + norms));
}

TEST(Weights, not_a_number_is_told_with_its_tensor) {
  for (const std::uint32_t bits : {0x7fc00000u, 0xff800000u}) {  // NaN, -infinity
    const std::string line = spoiled_error([&](Json& header, std::string& data) {
      const std::int64_t end = header["model.layers.1.mlp.down_proj.weight"]["data_offsets"][1];
      data.replace(static_cast<std::size_t>(end) - 4, 4, reinterpret_cast<const char*>(&bits), 4);
    });

    EXPECT_EQ(line,
              "/model.safetensors: model.layers.1.mlp.down_proj.weight: holds NaN or infinity; "
              "fetch or save the checkpoint again");
  }
}

TEST(Weights, not_a_number_in_a_tensor_that_is_not_used_does_no_harm) {
  const std::string line = spoiled_error(
      [](Json& header, std::string& data) {
        const std::int64_t end = header["lm_head.weight"]["data_offsets"][1];
        data.replace(static_cast<std::size_t>(end) - 4, 4, "\xff\xff\xff\xff");
      },
      {2, false});

  EXPECT_EQ(line, "");
}

TEST(Weights, a_missing_tensor_is_named) {
  const std::string line = spoiled_error([](Json& header, std::string&) {
    rename_tensor(header, "model.layers.1.self_attn.k_norm.weight", "elsewhere");
  });

  EXPECT_EQ(line, ": model.layers.1.self_attn.k_norm.weight: is missing; config.json asks for this tensor");
}

TEST(Weights, tensors_that_the_model_does_not_have_are_refused) {
  for (const std::string name :
       {"model.layers.0.self_attn.v_norm.weight", "model.layers.1.self_attn.q_proj.bias",
        "model.layers.2.self_attn.q_norm.weight"}) {
    const std::string line =
        spoiled_error([&](Json& header, std::string& data) { append_tensor(header, data, name, 32); });

    EXPECT_EQ(line.rfind("/model.safetensors: " + name + ": is not expected; ", 0), 0u) << line;
  }
  EXPECT_EQ(spoiled_error([](Json& header, std::string& data) {
              append_tensor(header, data, "model.layers.0.self_attn.rotary_emb.inv_freq", 4);
            }),
            "");
}

TEST(Weights, wrong_shape_and_dtype_are_named) {
  const std::string shape = spoiled_error([](Json& header, std::string&) {
    header["model.layers.0.mlp.up_proj.weight"]["shape"] = {32, 40};
  });
  const std::string dtype =
      spoiled_error([](Json& header, std::string&) { header["model.norm.weight"]["dtype"] = "I32"; });

  EXPECT_EQ(shape,
            "/model.safetensors: model.layers.0.mlp.up_proj.weight.shape = [32, 40]: "
            "does not fit config.json; which asks for [40, 32]");
  EXPECT_EQ(
      dtype,
      "/model.safetensors: model.norm.weight.dtype = I32: is not supported; F64, F32, BF16 and F16 are");
}

TEST(Weights, tensor_parallel_must_divide_the_kv_heads) {
  const ModelConfig config = read_model_config(golden_folder("qwen3") + "/config.json");

  EXPECT_THROW(allocate_weights(config, {2, true}, {0, 3}, at::kFloat, at::kMeta), InputError);
}

TEST(Weights, shares_cover_everything_once) {
  for (std::int64_t parts = 1; parts <= 5; ++parts) {
    std::int64_t next = 0;
    for (std::int64_t part = 0; part < parts; ++part) {
      const Range range = range_of(13, parts, part);

      EXPECT_EQ(range.first, next);
      EXPECT_LE(range.count, range_of(13, parts, 0).count);
      next += range.count;
    }
    EXPECT_EQ(next, 13);
  }
}

TEST(Weights, forward_dtype_follows_the_checkpoint_then_the_config) {
  const ModelConfig config = read_model_config(golden_folder("olmo2_mha") + "/config.json");
  const Checkpoint half = Checkpoint::open(golden_folder("olmo2_sharded_bf16"));

  EXPECT_EQ(forward_dtype({}, config, &half), Dtype::bfloat16);
  EXPECT_EQ(forward_dtype({}, config, nullptr), Dtype::float32);
  EXPECT_EQ(forward_dtype(Dtype::float64, config, &half), Dtype::float64);
}

TEST(Weights, matrices_stay_in_bfloat16_under_float32_where_the_checkpoint_has_nothing_else) {
  const ModelConfig config = read_model_config(golden_folder("olmo2_sharded_bf16") + "/config.json");
  const Checkpoint half = Checkpoint::open(golden_folder("olmo2_sharded_bf16")),
                   whole = Checkpoint::open(golden_folder("olmo2_mha"));

  EXPECT_EQ(weight_dtype(Dtype::float32, config, &half), Dtype::bfloat16);
  EXPECT_EQ(weight_dtype(Dtype::float64, config, &half), Dtype::float64);
  EXPECT_EQ(weight_dtype(Dtype::bfloat16, config, &half), Dtype::bfloat16);
  EXPECT_EQ(weight_dtype(Dtype::float32, config, &whole), Dtype::float32);
  EXPECT_EQ(weight_dtype(Dtype::float32, config, nullptr),
            config.dtype == "bfloat16" ? Dtype::bfloat16 : Dtype::float32);
}

TEST(RandomWeights, are_the_same_model_on_every_layout) {
  ModelConfig config = read_model_config(golden_folder("llama_gqa") + "/config.json");
  config.mlp_size = 41;  // shares that differ
  config.vocab_size = 65;
  const Layout alone(1), all(std::min(Layout(1).world.size(), 2));
  const PackedBatch batch{{1, 64, 7, 30}, {3, 1}};

  const auto expected =
      Transformer::random(config, 5, {Dtype::float64, {2, true}}, alone.tensor_parallel).logits(batch);
  const auto split =
      Transformer::random(config, 5, {Dtype::float64, {2, true}}, all.tensor_parallel).logits(batch);
  const auto other =
      Transformer::random(config, 6, {Dtype::float64, {2, true}}, alone.tensor_parallel).logits(batch);

  EXPECT_LE(relative_error(split, expected), 1e-12);
  EXPECT_GT(relative_error(other, expected), 0.1);
}

TEST(RandomWeights, are_drawn_as_transformers_draws_them) {
  ModelConfig config = read_model_config(golden_folder("olmo2_gqa") + "/config.json");
  config.vocab_size = 20000;
  config.initializer_range = 0.05;
  config.pad = 3;
  Weights weights = allocate_weights(config, {2, true}, {}, at::kDouble, at::kCPU);

  initialize_weights(config, 1, weights);

  const double count = 20000 * 32;
  const at::Tensor head = weights.lm_head / 0.05;
  EXPECT_NEAR(head.mean().item<double>(), 0, 4 / std::sqrt(count));
  EXPECT_NEAR(head.std().item<double>(), 1, 4 / std::sqrt(2 * count));
  EXPECT_NEAR(head.pow(4).mean().item<double>(), 3, 4 * std::sqrt(96 / count));
  EXPECT_NEAR((head * weights.embedding / 0.05).mean().item<double>(), 0, 4 / std::sqrt(count));
  EXPECT_NEAR((head.slice(1, 1) * head.slice(1, 0, -1)).mean().item<double>(), 0, 4 / std::sqrt(count));
  EXPECT_EQ(weights.embedding[3].abs().max().item<double>(), 0);
  EXPECT_GT(weights.embedding[4].abs().max().item<double>(), 0);
  EXPECT_TRUE(at::equal(weights.layers[1].q_norm, at::ones({32}, at::kDouble)));
  EXPECT_TRUE(at::equal(weights.layers[1].q.bias, at::zeros({32}, at::kDouble)));
}

}  // namespace
}  // namespace headspan
