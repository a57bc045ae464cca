// load: a checkpoint into a transformer, against a plain read of the same files into one small buffer, from
// disk and from the page cache; and how many bytes were read for those that were needed.
#include <algorithm>
#include <filesystem>
#include <optional>

#include <ATen/ATen.h>

#include "bench/bench.h"
#include "bench/plain_read.h"
#include "model/forward/transformer.h"
#include "model/types/read_config.h"
#include "model/weights/weight_loader.h"

namespace headspan {
namespace {

/// All ranks load the same weights, as data-parallel ranks do; each may use the whole model.
class LoadBench {
 public:
  LoadBench(const BenchOptions& options, const Comm& comm)
      : comm_(comm),
        self_(make_device_comm(comm.split(comm.rank(), 0), {})),
        config_(read_model_config(options.folder + "/config.json")),
        options_(with_shape_of(config_, options)),
        files_(weight_files(options.folder)),
        checkpoint_(Checkpoint::open(options.folder)),
        dtype_(forward_dtype({}, config_, &checkpoint_)) {}

  bool against_plain_read(bool cold) const {
    std::optional<Transformer> loaded;
    const auto prepare = [&] {
      loaded.reset();
      if (cold && comm_.is_root()) drop_from_cache(files_);
    };
    const auto plain = [&] {
      if (comm_.is_root()) plain_read(files_);
    };
    const auto load_all = [&] { loaded.emplace(load()); };
    const TurnTimes times = time_in_turn(comm_, options_.repeats, plain, load_all, prepare);
    const double gigabytes = 1e-9 * static_cast<double>(size_of(files_));
    const double required = comm_.size() == 1 ? 0.9 : cold ? 0.95 : 0.8;
    return report(
        options_, comm_,
        {std::string("load, ") + (cold ? "from disk" : "from the page cache") + ", against a plain read",
         "GB/s",
         gigabytes / times.routine,
         gigabytes / times.limit,
         times.speed,
         required,
         {cold ? Resource::disk : Resource::copy, gigabytes / times.routine}});
  }

  /// Bytes that the rank which reads most reads for one load, against those of the tensors of the model.
  bool reads_each_byte_once() const {
    std::int64_t read = -checkpoint_.bytes_read();
    const Transformer loaded = load();
    read += checkpoint_.bytes_read();
    read = comm_.max(read);
    std::int64_t needed = 0;
    for (const WeightSlice& slice :
         allocate_weights(config_, extent(), {}, scalar_type(dtype_), at::Device(at::kMeta)).slices)
      needed += checkpoint_.entry(slice.name).bytes();
    const auto [less, more] = std::minmax(read, needed);
    return report(
        options_, comm_,
        {"load, bytes read against bytes of the tensors", "GB", 1e-9 * static_cast<double>(read),
         1e-9 * static_cast<double>(needed), static_cast<double>(less) / static_cast<double>(more), 1});
  }

 private:
  Extent extent() const { return {config_.layers, true}; }
  Transformer load() const {
    return Transformer::load(config_, checkpoint_, {dtype_, extent()}, *self_, comm_);
  }

  const Comm& comm_;
  std::unique_ptr<DeviceComm> self_;
  ModelConfig config_;
  BenchOptions options_;
  std::vector<std::string> files_;
  Checkpoint checkpoint_;
  Dtype dtype_;
};

}  // namespace

bool bench_load(const BenchOptions& options, const Comm& comm) {
  const LoadBench bench(options, comm);
  const bool cold = bench.against_plain_read(true);
  const bool warm = bench.against_plain_read(false);
  const bool once = bench.reads_each_byte_once();
  return cold && warm && once;
}

}  // namespace headspan
