#include <filesystem>
#include <fstream>

#include "app/inspect/describe_inputs.h"
#include "app/job/command.h"
#include "app/job/job_file.h"
#include "base/checked.h"
#include "fuzz/fuzz_target.h"
#include "io/checkpoint/checkpoint.h"
#include "io/inputs/manifest.h"
#include "io/inputs/requests.h"
#include "io/inputs/tokens.h"
#include "model/types/read_config.h"

namespace headspan {
namespace {

void write(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

/// Reads the first bytes of every tensor, as far as the file has them.
void read_tensors(const std::string& folder) {
  write(folder + "/config.json", "{}");
  const Checkpoint checkpoint = Checkpoint::open(folder);
  for (const std::string& name : checkpoint.names()) {
    const TensorEntry& entry = checkpoint.entry(name);
    std::vector<char> bytes(to_size(std::min<std::int64_t>(entry.end - entry.begin, 64)));
    checkpoint.read(name, 0, static_cast<std::int64_t>(bytes.size()), bytes.data());
  }
}

/// A file of weights with the one tensor "w" and `number`.
std::string sound_shard(char number) {
  const std::string header =
      std::string(R"({"w)") + number + R"(":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  return static_cast<char>(header.size()) + std::string(7, '\0') + header + std::string(8, 'x');
}

/// What a file of a checkpoint, or beside it, should hold.
std::string sound_file(const std::string& name) {
  if (name == "config.json") return "{}";
  if (name == "../manifest.tsv") return "folder\trepository\n";
  if (name == "model.safetensors.index.json")
    return R"({"weight_map":{"w1":"model-00001-of-00002.safetensors","w2":"model-00002-of-00002.safetensors"}})";
  return sound_shard(name.find("00002-of") == std::string::npos ? '1' : '2');
}

/// Makes a file of a checkpoint in one of six ways, of which one is sound.
void make_file(const std::filesystem::path& path, const std::string& name, int way) {
  std::error_code exists;
  switch (way) {
    case 0:
      return write(path, sound_file(name));
    case 1:
      return write(path, "");
    case 2:
      return write(path, sound_file(name).substr(1));
    case 3:
      std::filesystem::create_directory(path, exists);
      return;
    case 4:
      return std::filesystem::create_symlink("missing", path, exists);
    default:
      return std::filesystem::create_symlink("../blobs/1.incomplete", path, exists);
  }
}

/// A folder whose files may be missing or damaged, or something else than files. Each two bytes of an input
/// say which file, and how it is made; if the first one is 0 there is no folder.
void read_folder(const std::string& folder, const std::string& input) {
  static const std::vector<std::string> names{"config.json",
                                              "model.safetensors",
                                              "model.safetensors.index.json",
                                              "model-00001-of-00002.safetensors",
                                              "model-00002-of-00002.safetensors",
                                              "model.safetensors.incomplete",
                                              "pytorch_model.bin",
                                              "snapshots",
                                              "../fetch.sh",
                                              "../manifest.tsv"};
  const std::filesystem::path parent = std::filesystem::path(folder) / "family", model = parent / "model";
  std::filesystem::remove_all(parent);
  const std::string files = input.c_str()[0] == '\0' ? "" : input.substr(0, 40);
  if (!files.empty()) std::filesystem::create_directories(model);
  for (std::size_t i = 0; i + 1 < files.size(); i += 2) {
    const std::string& name = names[static_cast<unsigned char>(files[i]) % names.size()];
    make_file(model / name, name, static_cast<unsigned char>(files[i + 1]) % 6);
  }
  config_of(model);
  const Checkpoint checkpoint = Checkpoint::open(model);
  for (const std::string& name : checkpoint.names()) checkpoint.file_of(name);
  checkpoint.entry("w2");
}

void read_safetensors(const std::string& folder, const std::string& input) {
  write(folder + "/model.safetensors", input);
  read_tensors(folder);
}

/// The index of two shards that are sound.
void read_index(const std::string& folder, const std::string& input) {
  for (const char number : {'1', '2'})
    write(folder + "/model-0000" + number + "-of-00002.safetensors", sound_shard(number));
  write(folder + "/model.safetensors.index.json", input);
  read_tensors(folder);
}

void read_config(const std::string& folder, const std::string& input) {
  write(folder + "/config.json", input);
  read_model_config(folder + "/config.json");
}

/// Reads every id, and where documents end.
void read_ids(const std::string& path) {
  const TokenFile file = TokenFile::open(path);
  file.read(0, file.count());
  file.document_ends(file.count());
  describe_tokens(path);
}

/// Sound ids, and an input beside them that says what they are.
auto read_beside(const char* name) {
  return [name](const std::string& folder, const std::string& input) {
    write(folder + "/tokens.bin", std::string(64, '\1'));
    write(folder + "/" + name, input);
    read_ids(folder + "/tokens.bin");
  };
}

void read_npy(const std::string& folder, const std::string& input) {
  write(folder + "/tokens.npy", input);
  read_ids(folder + "/tokens.npy");
}

void read_manifest_file(const std::string& folder, const std::string& input) {
  write(folder + "/sweep.tsv", input);
  describe_manifest(folder + "/sweep.tsv");
  const std::vector<ManifestRow> rows = read_manifest(folder + "/sweep.tsv");
  select_rows(rows, {"all"});
}

/// A job as each command would read it; a command that refuses it does not keep it from the others.
void read_job(const std::string&, const std::string& input) {
  const GivenKeys given = read_job_text("job.ini", input);
  for (const CommandRow& row : commands()) {
    try {
      to_ini(make_job(row.command, "job.ini", given), row.command);
    } catch (const InputError&) {
    }
  }
}

/// Reads requests of both kinds. Refuses what is not the second one.
void read_requests(const std::string& folder, const std::string& input) {
  const std::string path = folder + "/requests.jsonl";
  write(path, input);
  for (const std::int64_t positions : {0, 16}) {
    try {
      for (const ScoredRequest& request : read_scored_requests(path, 1000, positions))
        answer_line(request, -1.5, true);
    } catch (const InputError&) {
    }
    for (const GenerationRequest& request : read_generation_requests(path, 1000, positions))
      answer_line(request, {1, 2});
  }
}

}  // namespace

std::vector<FuzzTarget> file_targets() {
  return {{"folder", read_folder},
          {"safetensors", read_safetensors},
          {"index", read_index},
          {"config", read_config},
          {"sidecar", read_beside("tokens.json")},
          {"npy", read_npy},
          {"megatron", read_beside("tokens.idx")},
          {"manifest", read_manifest_file},
          {"job", read_job},
          {"requests", read_requests}};
}

}  // namespace headspan
