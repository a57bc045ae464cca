#include <algorithm>
#include <filesystem>
#include <fstream>

#include "app/inspect/describe_inputs.h"
#include "app/inspect/describe_outputs.h"
#include "app/inspect/result_table.h"
#include "app/inspect/summary.h"
#include "base/input_file.h"
#include "dist/matrix/matrix.h"
#include "fuzz/fuzz_target.h"
#include "fuzz/hdf5_mutation.h"
#include "io/hdf5/h5_file.h"
#include "io/inputs/activations.h"
#include "io/outputs/gram_file.h"

namespace headspan {
namespace {

void read_activations(const std::string& path) {
  describe_activations(path);
  Activations activations = Activations::open(path);
  const std::int64_t width = activations.heads() * activations.head_size();
  std::vector<float> rows(static_cast<std::size_t>(std::min<std::int64_t>(activations.tokens(), 16) * width));
  activations.read(0, std::min<std::int64_t>(activations.tokens(), 16), rows.data());
}

void read_result(const std::string& path) { format_results({summarise_result(path)}); }

/// The part of a state that is not of this run alone: its streams and what is summed of them.
void read_state(const std::string& path) {
  const Comm self = Comm::duplicate(MPI_COMM_SELF);
  const Grid grid(self, 1, 1);
  const H5File file = H5File::open(self, path);
  for (const GramStream& stream : read_gram_streams(file)) {
    Matrix matrix(grid, stream.columns(), stream.columns(), stream.head_size);
    read_gram(file, stream, "fit", matrix);
  }
  read_attention_sizes(file);
}

/// The first byte of an input chooses among the sound files in `bases`, the others say how it is changed.
FuzzTarget target(const std::string& name, const std::string& bases, void (*read)(const std::string& path)) {
  std::vector<std::filesystem::path> paths;
  for (const auto& base : std::filesystem::directory_iterator(bases + "/" + name))
    paths.push_back(base.path());
  std::sort(paths.begin(), paths.end());
  std::vector<std::string> sound;
  for (const auto& path : paths) sound.push_back(read_whole_file(path));
  return {name, [read, sound](const std::string& folder, const std::string& input) {
            const std::string path = folder + "/input.h5";
            std::ofstream(path, std::ios::binary)
                << sound[static_cast<unsigned char>(input.c_str()[0]) % sound.size()];
            mutate_hdf5(path, input.substr(std::min<std::size_t>(1, input.size())));
            read(path);
          }};
}

}  // namespace

std::vector<FuzzTarget> hdf5_targets(const std::string& bases) {
  silence_h5();
  return {target("activations", bases, read_activations),
          target("gram", bases, [](const auto& path) { describe_gram(path); }),
          target("plan", bases, [](const auto& path) { describe_plan(path); }),
          target("codec", bases, [](const auto& path) { describe_codec(path); }),
          target("result", bases, read_result),
          target("state", bases, read_state)};
}

}  // namespace headspan
