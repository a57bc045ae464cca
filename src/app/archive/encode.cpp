#include "app/archive/encode.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>

#include "app/job/job_file.h"
#include "app/run/input_watch.h"
#include "app/run/output_lock.h"
#include "app/run/rank_resources.h"
#include "app/run/run_clock.h"
#include "app/run/write_target.h"
#include "base/checked.h"
#include "base/clock.h"
#include "base/printable.h"
#include "base/provenance.h"
#include "base/sha256.h"
#include "dist/comm/agreement.h"
#include "io/archive/archive_layout.h"
#include "io/archive/codec_file.h"
#include "io/archive/kv_tensors.h"
#include "io/archive/rate_control.h"
#include "io/outputs/publish.h"

namespace headspan {
namespace {

using Block = std::vector<std::uint8_t>;

/// What is coded, with what, and how.
struct Encoding {
  KvTensors tensors;
  KvCoder coder;
  ArchiveHeader header;
  ArchiveLayout layout;

  Encoding(const Job::Archive& archive, KvCodec codec)
      : tensors(archive.input),
        coder(std::move(codec)),
        header(make_header(archive)),
        layout(header, coder.blocks()) {
    header.blocks = layout.blocks();
  }

  ReadLayer reader() const {
    return [this](Stream stream, std::int64_t layer, const std::vector<std::int64_t>& tokens, float* to) {
      tensors.read(stream, layer, tokens, to);
    };
  }

 private:
  ArchiveHeader make_header(const Job::Archive& archive) const;
};

/// Returns the first `count` tokens of each document, of those that there are.
std::vector<std::int64_t> first_tokens(const std::vector<std::int64_t>& documents, std::int64_t count,
                                       std::int64_t tokens) {
  std::vector<std::int64_t> exact;
  for (const std::int64_t document : documents)
    for (std::int64_t t = document; t < std::min(document + count, tokens); ++t) exact.push_back(t);
  std::sort(exact.begin(), exact.end());
  exact.erase(std::unique(exact.begin(), exact.end()), exact.end());
  return exact;
}

/// Throws InputError unless the tensors have the shape of the codec's model.
void check_shape(const std::string& path, const KvShape& shape, const KvCodec& codec) {
  const auto check = [&](const char* what, std::int64_t found, std::int64_t expected) {
    if (found != expected)
      throw InputError(path, what, std::to_string(found), "is not that of the codec's model",
                       "the model has " + std::to_string(expected));
  };
  check("layers", shape.layers, codec.layers);
  check("heads", shape.heads, codec.kv_heads);
  check("head size", shape.head_size, codec.head_size);
}

ArchiveHeader Encoding::make_header(const Job::Archive& archive) const {
  const KvCodec& codec = coder.codec();
  const KvShape& shape = tensors.shape();
  check_shape(archive.input, shape, codec);
  for (const std::int64_t document : archive.documents)
    if (document >= shape.tokens)
      throw InputError("", "archive.documents", std::to_string(document), "is no token of " + archive.input,
                       "it has " + std::to_string(shape.tokens));
  ArchiveHeader made;
  made.codec_sha256 = sha256_file(archive.codec);
  made.config_sha256 = codec.config_sha256;
  made.weights_digest = codec.weights_digest;
  made.layers = shape.layers;
  made.kv_heads = shape.heads;
  made.head_size = shape.head_size;
  made.tokens = shape.tokens;
  made.first_position = archive.first_position;
  made.exact = first_tokens(archive.documents, codec.exact_first, shape.tokens);
  made.type = shape.type;
  made.step = step_of(archive, codec);
  return made;
}

/// Returns the blocks of a chunk, one behind the other, each behind its size: nothing for chunks beyond the
/// last.
Block encode_chunk(const Encoding& encoding, std::int64_t chunk) {
  Block bytes;
  if (chunk >= encoding.layout.chunks()) return bytes;
  const std::vector<std::int64_t> tokens = encoding.layout.tokens(chunk);
  for (const Block& block : encoding.coder.encode(tokens, encoding.layout.positions(tokens),
                                                  to_int(encoding.header.step), encoding.reader())) {
    const auto size = static_cast<std::uint32_t>(to_int(static_cast<std::int64_t>(block.size())));
    const auto* const first = reinterpret_cast<const std::uint8_t*>(&size);
    bytes.insert(bytes.end(), first, first + sizeof size);
    bytes.insert(bytes.end(), block.begin(), block.end());
  }
  return bytes;
}

/// Appends what encode_chunk returned.
void append_chunk(const Block& bytes, ArchiveWriter& writer) {
  for (std::size_t at = 0; at < bytes.size();) {
    std::uint32_t size = 0;
    std::copy_n(&bytes[at], sizeof size, reinterpret_cast<std::uint8_t*>(&size));
    const auto first = bytes.begin() + static_cast<std::ptrdiff_t>(at + sizeof size);
    writer.append({first, first + size});
    at += sizeof size + size;
  }
}

/// Writes the archive: in rounds of a chunk for each rank, whose blocks rank 0 appends. Collective.
void write_archive(const Encoding& encoding, const std::string& path, const Comm& world) {
  std::unique_ptr<ArchiveWriter> writer;
  agree(world, [&] {
    if (!world.is_root()) return;
    writer = std::make_unique<ArchiveWriter>(path, encoding.header);
    writer->append(exact_block(encoding.header, encoding.reader()));
  });
  for (std::int64_t first = 0; first < encoding.layout.chunks(); first += world.size()) {
    stop_where_asked(world);
    Block mine;
    agree(world, [&] { mine = encode_chunk(encoding, first + world.rank()); });
    const std::vector<Block> chunks = world.gather(std::move(mine));
    agree(world, [&] {
      if (world.is_root())
        for (const Block& chunk : chunks) append_chunk(chunk, *writer);
    });
  }
  agree(world, [&] {
    if (writer) writer->finish();
  });
}

/// Reads every block of an archive again. Throws InputError if one is not what was written.
void verify(const std::string& path) {
  const ArchiveReader reader(path);
  for (std::int64_t block = 0; block < reader.header().blocks; ++block) reader.read(block);
}

void print_summary(const Job::Archive& archive, const Encoding& encoding, double seconds) {
  const ArchiveHeader& header = encoding.header;
  const double numbers = 2. * static_cast<double>(header.layers * header.kv_heads * header.head_size) *
                         static_cast<double>(header.tokens);
  const std::int64_t bytes = ArchiveReader(archive.output).bytes();
  std::printf(
      "archive=%s tokens=%lld exact=%lld step=%lld bytes=%lld bits=%.4f\n"
      "status=done units=1 skipped=0 seconds=%.1f\n",
      escaped(archive.output).c_str(), static_cast<long long>(header.tokens),
      static_cast<long long>(header.exact.size()), static_cast<long long>(header.step),
      static_cast<long long>(bytes), 8 * static_cast<double>(bytes) / numbers, seconds);
}

}  // namespace

int step_of(const Job::Archive& archive, const KvCodec& codec) {
  return archive.kl ? step_for_kl(codec.curve, *archive.kl) : step_for_bits(codec.curve, archive.bits);
}

int encode_archive(const Job& job, const Comm& world, const Log& log) {
  const double start = steady_seconds();
  const InputWatch inputs(job);
  const Job::Archive& archive = job.archive;
  start_threads(world, log);
  std::unique_ptr<const Encoding> encoding;
  agree(world, [&] {
    check_target({"archive.output", archive.output, archive.output}, input_files(job));
    check_file_name(archive.output, "archive.output", archive.output);
    encoding = std::make_unique<Encoding>(archive, read_codec(archive.codec));
  });
  check_done(world, {archive.codec}, log);
  const std::string id = world.broadcast(job_id(), 0);
  try {
    const std::unique_ptr<LockFile> lock = take_lock(archive.output, id, world, log);
    publish(
        world,
        {archive.output, id, sha256_hex(to_ini(job, Command::archive_encode)), lock.get(), /*is_hdf5=*/false},
        [&](const std::string& path) {
          write_archive(*encoding, path, world);
          agree(world, [&] { inputs.check(); });
        },
        verify);
  } catch (const Stopped&) {
    if (world.is_root())
      std::fprintf(stderr, "headspan: stopped by a signal: %s is not written\n",
                   escaped(archive.output).c_str());
    return 1;
  }
  if (world.is_root()) print_summary(archive, *encoding, steady_seconds() - start);
  log.next("headspan archive decode --archive.codec " + shell_word(archive.codec) + " --archive.input " +
           shell_word(archive.output) + " --archive.output KV.safetensors");
  return 0;
}

}  // namespace headspan
