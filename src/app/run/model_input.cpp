#include "app/run/model_input.h"

#include "base/clock.h"
#include "base/progress.h"
#include "base/sha256.h"
#include "device/device_values.h"
#include "dist/comm/agreement.h"
#include "model/types/read_config.h"
#include "model/weights/weight_loader.h"

namespace headspan {

ModelInput open_model(const Job::Model& rule, const std::string& path, bool random, bool logits) {
  ModelInput input;
  if (!random) input.checkpoint = Checkpoint::open(path);
  input.config_path = config_of(path);
  input.config = read_model_config(input.config_path);
  input.config_sha256 = sha256_file(input.config_path);
  if (input.checkpoint) check_weights(*input.checkpoint, input.config, {input.config.layers, logits});
  input.dtype = forward_dtype(rule.dtype, input.config, input.checkpoint ? &*input.checkpoint : nullptr);
  return input;
}

Transformer load_model(const Job::Model& rule, const ModelInput& input, bool logits,
                       const ProcessLayout& processes, const Log& log, const std::string& name) {
  const double start = steady_seconds();
  TransformerOptions options{input.dtype, {input.config.layers, logits}};
  if (processes.gpu())
    options.device = at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(*processes.gpu()));
  set_exact_products();
  std::optional<Transformer> model;
  agree(processes.group(), [&] {
    model = input.checkpoint ? Transformer::load(input.config, *input.checkpoint, options,
                                                 processes.tensor_device(), processes.data())
                             : Transformer::random(input.config, static_cast<std::uint64_t>(rule.seed),
                                                   options, processes.tensor_device());
  });
  log.event("loaded", {{"unit", name},
                       {"layers", std::to_string(input.config.layers)},
                       {"dtype", dtype_name(input.dtype)},
                       {"seconds", std::to_string(steady_seconds() - start)}});
  return std::move(*model);
}

}  // namespace headspan
