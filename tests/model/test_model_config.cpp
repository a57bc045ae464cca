// config.json: both generations of spelling, and each way for it to be wrong.
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/error.h"
#include "model/types/read_config.h"

namespace headspan {
namespace {

using Json = nlohmann::json;

bool is_scaled(const ModelConfig& config) { return config.rope.scaling.index() != 0; }

class ModelConfigFile : public testing::Test {
 protected:
  ModelConfigFile() : path_(testing::TempDir() + "config." + std::to_string(getpid()) + ".json") {}
  ~ModelConfigFile() override { std::filesystem::remove(path_); }

  ModelConfig read(const Json& config) {
    std::ofstream(path_) << config.dump();
    return read_model_config(path_);
  }

  /// The message of the InputError that the config causes, without the file's name, or "".
  std::string error_of(const Json& config) {
    try {
      read(config);
    } catch (const InputError& error) {
      const std::string line = error.what();
      return line.rfind(path_ + ": ", 0) == 0 ? line.substr(path_.size() + 2) : "no file: " + line;
    }
    return "";
  }

  std::string path_;
  const Json llama_ = Json::parse(R"({"model_type": "llama", "hidden_act": "silu", "hidden_size": 4096,
    "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
    "vocab_size": 128256, "max_position_embeddings": 131072, "rms_norm_eps": 1e-05, "rope_theta": 500000.0,
    "rope_scaling": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192, "rope_type": "llama3"}, "torch_dtype": "bfloat16",
    "bos_token_id": 128000, "eos_token_id": [128001, 128008], "initializer_range": 0.02})");
};

std::string golden_config(const std::string& model, const std::string& file) {
  return std::string(HEADSPAN_TEST_DATA) + "/golden/" + model + "/" + file;
}

TEST_F(ModelConfigFile, reads_llama_3_1_in_the_4_x_spelling) {
  const ModelConfig config = read(llama_);

  EXPECT_EQ(config.layers, 32);
  EXPECT_EQ(config.head_size, 128);
  EXPECT_EQ(config.kv_heads, 8);
  EXPECT_EQ(config.max_positions, 131072);
  EXPECT_EQ(config.rope.theta, 500000);
  const auto* scaling = std::get_if<Llama3Scaling>(&config.rope.scaling);
  ASSERT_NE(scaling, nullptr);
  EXPECT_EQ(scaling->factor, 8);
  EXPECT_EQ(scaling->original_max_positions, 8192);
  EXPECT_EQ(config.eos, (std::vector<std::int64_t>{128001, 128008}));
  EXPECT_EQ(config.bos, 128000);
  EXPECT_FALSE(config.pad.has_value());
  EXPECT_EQ(config.dtype, "bfloat16");
  EXPECT_FALSE(config.normalises_attention_output());
  EXPECT_EQ(config.qk_norm, QkNorm::none);
}

TEST_F(ModelConfigFile, both_spellings_of_transformers_say_the_same) {
  for (const std::string model : {"olmo2_mha", "llama3_scaled", "falcon3", "qwen3_bias"}) {
    const ModelConfig five = read_model_config(golden_config(model, "config.json"));
    const ModelConfig four = read_model_config(golden_config(model, "config_4.json"));

    EXPECT_EQ(five.rope.theta, four.rope.theta) << model;
    EXPECT_EQ(is_scaled(five), model == "llama3_scaled");
    EXPECT_EQ(is_scaled(four), model == "llama3_scaled");
    EXPECT_EQ(five.dtype, "float32");
    EXPECT_EQ(four.dtype, "float32");
  }
}

TEST_F(ModelConfigFile, type_is_an_old_name_of_rope_type) {
  Json config = llama_;
  config["rope_scaling"]["type"] = "llama3";
  config["rope_scaling"].erase("rope_type");

  EXPECT_TRUE(is_scaled(read(config)));
}

TEST_F(ModelConfigFile, architectures_differ_in_their_norms) {
  const ModelConfig olmo2 = read_model_config(golden_config("olmo2_gqa", "config.json"));
  const ModelConfig qwen3 = read_model_config(golden_config("qwen3_bias", "config.json"));
  const ModelConfig falcon3 = read_model_config(golden_config("falcon3", "config.json"));

  EXPECT_TRUE(olmo2.normalises_attention_output() && olmo2.norm.round_once && olmo2.rope.round_once &&
              olmo2.qk_norm == QkNorm::whole && olmo2.qkv_bias && olmo2.o_bias);
  EXPECT_TRUE(!qwen3.normalises_attention_output() && !qwen3.norm.round_once &&
              qwen3.qk_norm == QkNorm::per_head && qwen3.qkv_bias && qwen3.o_bias);
  EXPECT_EQ(falcon3.head_size, 16);
  EXPECT_EQ(falcon3.hidden_size, 32);
  EXPECT_EQ(falcon3.heads, 4);
}

TEST_F(ModelConfigFile, absent_or_null_fields_take_their_defaults) {
  Json config = llama_;
  config["num_key_value_heads"] = nullptr;
  config["head_dim"] = nullptr;
  config["rope_scaling"] = nullptr;
  for (const char* key : {"eos_token_id", "rope_theta", "torch_dtype"}) config.erase(key);

  const ModelConfig read_config = read(config);

  EXPECT_EQ(read_config.kv_heads, 32);
  EXPECT_EQ(read_config.rope.theta, 10000);  // Llama 2
  EXPECT_TRUE(read_config.eos.empty() && read_config.dtype.empty());
  EXPECT_FALSE(is_scaled(read_config) || read_config.tie_word_embeddings || read_config.mlp_bias);
}

TEST_F(ModelConfigFile, missing_fields_are_named) {
  for (const std::string key :
       {"model_type", "hidden_act", "hidden_size", "intermediate_size", "num_hidden_layers",
        "num_attention_heads", "vocab_size", "max_position_embeddings", "rms_norm_eps"}) {
    Json config = llama_;
    config.erase(key);

    EXPECT_EQ(error_of(config), key + ": is missing; this model type needs it");
  }
}

TEST_F(ModelConfigFile, wrong_values_are_named_with_what_is_supported) {
  const std::vector<std::pair<Json, std::string>> cases{
      {{{"model_type", "gpt2"}},
       "model_type = \"gpt2\": is not supported; apertus, gemma2, gemma3_text, gpt_neox, "
       "llama, mistral, olmo, olmo2, olmo3, phi3, qwen2, qwen3, seed_oss and smollm3 are"},
      {{{"hidden_act", "gelu"}}, "hidden_act = \"gelu\": is not supported; only silu is"},
      {{{"hidden_size", 0}}, "hidden_size = 0: "},
      {{{"hidden_size", -4096}}, "hidden_size = -4096: "},
      {{{"hidden_size", 4096.0}}, "hidden_size = 4096.0: "},
      {{{"hidden_size", 18446744073709551615u}}, "hidden_size = 18446744073709551615: "},
      {{{"hidden_size", 4097}}, "hidden_size = 4097: is not a multiple of the 32 attention heads"},
      {{{"num_hidden_layers", 1000000}}, "num_hidden_layers = 1000000: "},
      {{{"num_key_value_heads", 7}}, "num_key_value_heads = 7: does not divide the 32 attention heads"},
      {{{"head_dim", 129}}, "head_dim = 129: makes heads of 129 coordinates"},
      {{{"head_dim", 1048576}}, "head_dim = 1048576: makes projections of 33554432 rows"},
      {{{"rms_norm_eps", "small"}}, "rms_norm_eps = \"small\": "},
      {{{"attention_bias", 1}}, "attention_bias = 1: "},
      {{{"eos_token_id", {1, "two"}}}, "eos_token_id = [1,\"two\"]: "},
      {{{"layer_types", {"full_attention", "sliding_attention"}}}, "layer_types = "},
      {{{"sliding_window", 8}}, "sliding_window = 8: is no key of llama; leave it out if "},
      {{{"sliding_window", 8}, {"use_sliding_window", true}}, "sliding_window = 8: is no key of llama; "},
      {{{"rope_parameters", {{"rope_type", "default"}}}}, "rope_scaling = "},
      {{{"rope_scaling", {{"rope_type", "dynamic"}, {"factor", 4.0}}}},
       "rope_scaling.rope_type = \"dynamic\": is not supported; default, linear, llama3, yarn and longrope "
       "are"},
      {{{"rope_scaling", {{"type", "linear"}}}}, "rope_scaling.factor: is missing"},
      {{{"rope_scaling", {{"type", "yarn"}, {"factor", 4.0}}}},
       "rope_scaling.original_max_position_embeddings: is missing"},
      {{{"rope_scaling", {{"type", "yarn"}, {"factor", 4.0}, {"mscale", 1.0}}}},
       "rope_scaling.mscale = 1.0: is not supported"},
      {{{"rope_scaling",
         {{"type", "longrope"}, {"short_factor", {1.0}}, {"original_max_position_embeddings", 64}}}},
       "rope_scaling.short_factor = [1.0]: is no possible value; a list of 64 numbers"},
      {{{"rope_scaling", {{"rope_type", "llama3"}, {"type", "linear"}}}},
       "rope_scaling.type = \"linear\": contra"},
      {{{"rope_scaling", {{"rope_type", "llama3"}}}}, "rope_scaling.factor: is missing"},
      {{{"rope_scaling", {{"factor", 4.0}}}}, "rope_scaling.type: is missing"},
      {{{"rope_scaling", nullptr}, {"rope_parameters", {{"rope_theta", 1e4}, {"factor", 4.0}}}},
       "rope_parameters.type: is missing"},
  };
  for (const auto& [change, message] : cases) {
    Json config = llama_;
    config.merge_patch(change.contains("rope_scaling") ? Json{{"rope_scaling", nullptr}} : Json::object());
    config.update(change);

    EXPECT_EQ(error_of(config).substr(0, message.size()), message);
  }
}

TEST_F(ModelConfigFile, layers_have_the_windows_that_the_file_names) {
  Json qwen = llama_;
  qwen.update(
      {{"model_type", "qwen3"}, {"head_dim", 128}, {"sliding_window", 4096}, {"max_window_layers", 28}});
  qwen.erase("rope_scaling");
  const auto with = [&](const Json& change) {
    Json config = qwen;
    config.update(change);
    return config;
  };
  const auto windows = [&](const Json& change) {
    const ModelConfig config = read(with(change));
    std::vector<std::int64_t> found;
    for (std::int64_t layer = 0; layer < config.layers; ++layer)
      found.push_back(config.attention_in(layer).window);
    return found;
  };
  const std::vector<std::int64_t> none(32, 0);
  std::vector<std::int64_t> upper = none;
  std::fill(upper.begin() + 28, upper.end(), 4096);

  EXPECT_EQ(windows({{"use_sliding_window", false}}), none);
  EXPECT_EQ(windows({{"use_sliding_window", true}}), upper);
  EXPECT_EQ(windows({{"use_sliding_window", true}, {"max_window_layers", 32}}), none);
  EXPECT_EQ(windows({{"use_sliding_window", true}, {"sliding_window", nullptr}}), none);
  EXPECT_EQ(windows({{"model_type", "mistral"}}), std::vector<std::int64_t>(32, 4096));
  Json olmo3 = with({{"model_type", "olmo3"}});
  const std::vector<bool> slides{true, true, true, false, true, true, true, false};
  for (std::size_t layer = 0; layer < slides.size(); ++layer)
    EXPECT_EQ(read(olmo3).attention_in(static_cast<std::int64_t>(layer)).window > 0, slides[layer]) << layer;
  olmo3["layer_types"] = {"full_attention"};
  EXPECT_EQ(error_of(olmo3).substr(0, 59), "layer_types = [\"full_attention\"]: is not a list of 32 words");
  EXPECT_EQ(error_of(with({{"mlp_bias", true}})).substr(0, 15), "mlp_bias = true");
}

TEST_F(ModelConfigFile, a_file_that_is_no_json_object_is_refused) {
  std::ofstream(path_) << "{\"model_type\": ";
  EXPECT_THROW(read_model_config(path_), InputError);
  EXPECT_EQ(error_of(Json::array({1, 2})), "model_type: is missing; this model type needs it");
  EXPECT_THROW(read_model_config(path_ + ".none"), InputError);
}

}  // namespace
}  // namespace headspan
