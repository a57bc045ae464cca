// Loading a checkpoint against a plain read of the same bytes into a reused buffer, and the forward pass by
// itself (its peer is transformers': tests/bench/peers.py).
#include <filesystem>

#include <ATen/ATen.h>
#include <fcntl.h>
#include <unistd.h>

#include "bench/bench.h"
#include "model/transformer.h"
#include "model/weight_loader.h"

namespace headspan {
namespace {

std::vector<std::string> weight_files(const std::string& folder) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.path().extension() == ".safetensors") files.push_back(entry.path().string());
  return files;
}

/// Opens a file; where `cold`, out of the page cache.
int open_file(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) throw_errno("cannot open", path);
  return file;
}

void drop_from_cache(const std::vector<std::string>& files) {
  for (const std::string& path : files) {
    const int file = open_file(path);
    fdatasync(file);
    posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
    close(file);
  }
}

double plain_read(const std::vector<std::string>& files) {
  static std::vector<char> buffer(8 << 20);
  double bytes = 0;
  for (const std::string& path : files) {
    const int file = open_file(path);
    for (ssize_t n = 1; n > 0; bytes += static_cast<double>(n > 0 ? n : 0))
      n = read(file, buffer.data(), buffer.size());
    close(file);
  }
  return bytes;
}

}  // namespace

bool bench_load(const BenchOptions& options, const Comm& comm) {
  const auto files = weight_files(options.folder);
  const ModelConfig config = read_model_config(options.folder + "/config.json");
  const Comm self = comm.split(comm.rank(), 0);
  const Checkpoint checkpoint = Checkpoint::open(options.folder);
  const auto dtype = forward_dtype("auto", config, &checkpoint);
  double bytes = 0;
  bool met = true;
  for (const bool cold : {true, false}) {
    const auto prepare = [&] {
      if (cold) drop_from_cache(files);
    };
    const PairedTimes times = time_in_turn(
        comm, options.repeats,
        [&] {
          prepare();
          bytes = plain_read(files);
        },
        [&] {
          prepare();
          Transformer::load(config, checkpoint, dtype, {config.layers, true}, self, comm);
        });
    met = report(options, comm,
                 {std::string("load, ") + (cold ? "cold" : "warm") + ", against a plain read", "GB/s",
                  1e-9 * bytes / times.second, 1e-9 * bytes / times.first, times.ratio, cold ? 0.9 : 0}) &&
          met;
  }
  return met;
}

bool bench_model(const BenchOptions& options, const Comm& comm) {
  const ModelConfig config = read_model_config(options.folder + "/config.json");
  const Comm self = comm.split(comm.rank(), 0);
  const Checkpoint checkpoint = Checkpoint::open(options.folder);
  const Transformer model =
      Transformer::load(config, checkpoint, at::kFloat, {config.layers, false}, self, self);
  PackedBatch batch;
  for (std::int64_t t = 0; t < options.tokens; ++t) batch.tokens.push_back(t * 7919 % config.vocab_size);
  for (std::int64_t t = 0; t < options.tokens; t += options.sequence_length)
    batch.lengths.push_back(std::min(options.sequence_length, options.tokens - t));
  const auto run = [&] {
    model.capture(batch, CapturePoint::roped, {Stream::k, Stream::q, Stream::v},
                  [](std::int64_t, Stream, const at::Tensor&) {});
  };
  const PairedTimes times = time_in_turn(comm, options.repeats, run, run);
  const double rate = static_cast<double>(options.tokens) / times.second;
  return report(options, comm,
                {"forward with capture of K, Q and V, float32 (peer: peers.py)", "tok/s", rate, rate, 1, 0});
}

}  // namespace headspan
