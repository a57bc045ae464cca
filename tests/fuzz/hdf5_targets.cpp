#include <algorithm>
#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "app/inspect/describe_inputs.h"
#include "app/inspect/describe_outputs.h"
#include "app/inspect/result_table.h"
#include "app/inspect/summary.h"
#include "base/input_file.h"
#include "dist/matrix/matrix.h"
#include "fuzz/fuzz_target.h"
#include "fuzz/hdf5_mutation.h"
#include "io/archive/codec_file.h"
#include "io/hdf5/h5_file.h"
#include "io/inputs/activations.h"
#include "io/outputs/compression_plan.h"
#include "io/outputs/gram_check.h"
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

/// Copies a file that a reader takes with what `copy` reads and writes, and the copy too: both copies must be
/// the same. A reader that refuses the first copy has taken, or written, what it should not.
void check_copies(const std::string& path, void (*copy)(const std::string& from, const std::string& to)) {
  const std::string first = path + ".first", second = path + ".second";
  copy(path, first);
  try {
    copy(first, second);
  } catch (const std::exception& error) {
    throw std::logic_error(std::string("a copy is refused: ") + error.what());
  }
  if (read_whole_file(first) != read_whole_file(second)) throw std::logic_error("a copy of a copy differs");
}

void copy_plan(const std::string& from, const std::string& to) {
  const CompressionPlan plan = read_plan(from);
  plan.group_tokens();
  write_plan(to, plan, {});
}

void copy_codec(const std::string& from, const std::string& to) { write_codec(to, read_codec(from), {}); }

void copy_gram(const std::string& from, const std::string& to) {
  const Comm self = Comm::duplicate(MPI_COMM_SELF);
  const Grid grid(self, 1, 1);
  const H5File file = H5File::open(self, from);
  H5File copy = H5File::create(self, to);
  for (const GramStream& stream : read_gram_streams(file)) {
    const std::int64_t columns = stream.columns(), d = stream.head_size;
    Matrix fit(grid, columns, columns, d), heldout(grid, columns, columns, d);
    const GramPart fit_part = read_gram(file, stream, "fit", fit);
    check_gram(from, stream.name + "/fit", fit_part, d);
    std::optional<GramPart> heldout_part;
    if (stream.heldout) heldout_part = read_gram(file, stream, "heldout", heldout);
    write_gram(copy, stream, fit_part, heldout_part);
  }
  if (read_attention_sizes(file)) write_attention(copy, self, read_attention(file, self));
  copy.close();
}

void read_plan_file(const std::string& path) {
  describe_plan(path);
  check_copies(path, copy_plan);
}

void read_codec_file(const std::string& path) {
  describe_codec(path);
  check_copies(path, copy_codec);
}

void read_gram_file(const std::string& path) {
  describe_gram(path);
  check_copies(path, copy_gram);
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
  return {target("activations", bases, read_activations), target("gram", bases, read_gram_file),
          target("plan", bases, read_plan_file),          target("codec", bases, read_codec_file),
          target("result", bases, read_result),           target("state", bases, read_state)};
}

}  // namespace headspan
