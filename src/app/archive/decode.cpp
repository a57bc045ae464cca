#include "app/archive/decode.h"

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
#include "io/outputs/publish.h"

namespace headspan {
namespace {

/// An archive, the codec that it was written with, and which part of it is decoded.
struct Decoding {
  ArchiveReader archive;
  KvCoder coder;
  ArchiveLayout layout;
  Range tokens, layers;

  explicit Decoding(const Job::Archive& job);

  const ArchiveHeader& header() const { return archive.header(); }
  KvShape shape() const {
    return {layers.count, header().kv_heads, tokens.count, header().head_size, header().type};
  }
};

/// Returns the range that a key asks for, or all `total`. Throws InputError if it reaches further.
Range range_asked(const std::optional<Range>& asked, std::int64_t total, const char* key, const char* what) {
  if (!asked) return {0, total};
  if (asked->first + asked->count > total)
    throw InputError("", key,
                     std::to_string(asked->first) + ":" + std::to_string(asked->first + asked->count),
                     "is beyond the archive", std::string("it has ") + std::to_string(total) + " " + what);
  return *asked;
}

/// Throws InputError unless the archive was written with this codec.
void check_codec(const ArchiveReader& archive, const std::string& codec) {
  if (archive.header().codec_sha256 != sha256_file(codec))
    throw InputError(archive.path(), "codec_sha256", archive.header().codec_sha256,
                     "is not that of " + printable(codec),
                     "give the codec that the archive was written with");
}

KvCodec codec_of(const ArchiveReader& archive, const std::string& path) {
  check_codec(archive, path);
  KvCodec codec = read_codec(path);
  const ArchiveHeader& header = archive.header();
  if (header.layers != codec.layers || header.kv_heads != codec.kv_heads ||
      header.head_size != codec.head_size)
    throw InputError(archive.path(), "layers", std::to_string(header.layers),
                     "contradicts the codec that the archive names");
  return codec;
}

Decoding::Decoding(const Job::Archive& job)
    : archive(job.input),
      coder(codec_of(archive, job.codec)),
      layout(archive.header(), coder.blocks()),
      tokens(range_asked(job.tokens, header().tokens, "archive.tokens", "tokens")),
      layers(range_asked(job.layers, header().layers, "archive.layers", "layers")) {
  if (header().blocks != layout.blocks())
    throw InputError(archive.path(), "blocks", std::to_string(header().blocks),
                     "is not what so many tokens take", std::to_string(layout.blocks()) + " are expected");
}

/// Returns the numbers of the tokens of a layer that are in the range.
std::vector<float> kept_rows(const std::vector<std::int64_t>& tokens, const float* values, std::int64_t width,
                             const Range& range) {
  std::vector<float> kept;
  for (std::size_t t = 0; t < tokens.size(); ++t)
    if (range.contains(tokens[t])) {
      const float* const row = values + static_cast<std::int64_t>(t) * width;
      kept.insert(kept.end(), row, row + width);
    }
  return kept;
}

std::vector<std::int64_t> kept_tokens(const std::vector<std::int64_t>& tokens, const Range& range) {
  std::vector<std::int64_t> kept;
  for (const std::int64_t token : tokens)
    if (range.contains(token)) kept.push_back(token);
  return kept;
}

/// Writes what was decoded to a file of the range alone. For rank 0.
class PartWriter {
 public:
  PartWriter(const Decoding& decoding, const std::string& path, KvTensorsWriter::Format format)
      : decoding_(decoding), writer_(path, decoding.shape(), format) {}

  /// Writes the tokens `kept` of a layer, as the archive counts both.
  void write(Stream stream, std::int64_t layer, std::vector<std::int64_t> kept, const float* values) {
    for (std::int64_t& token : kept) token -= decoding_.tokens.first;
    if (!kept.empty()) writer_.write(stream, layer - decoding_.layers.first, kept, values);
  }

  void write_exact() {
    const ArchiveHeader& header = decoding_.header();
    const std::int64_t width = header.kv_heads * header.head_size;
    read_exact_block(header, decoding_.archive.read(0), decoding_.layers,
                     [&](Stream stream, std::int64_t layer, const auto& tokens, const float* values) {
                       const std::vector<float> kept = kept_rows(tokens, values, width, decoding_.tokens);
                       write(stream, layer, kept_tokens(tokens, decoding_.tokens), kept.data());
                     });
  }

  void close() { writer_.close(); }

 private:
  const Decoding& decoding_;
  KvTensorsWriter writer_;
};

/// Returns the chunks that have tokens of the range.
std::vector<std::int64_t> chunks_of(const Decoding& decoding) {
  std::vector<std::int64_t> chunks;
  for (std::int64_t chunk = 0; chunk < decoding.layout.chunks(); ++chunk)
    if (decoding.layout.has_tokens(chunk, decoding.tokens)) chunks.push_back(chunk);
  return chunks;
}

/// Returns the wanted numbers of a chunk: of k's layers, then of v's, [layer, token, head, d].
std::vector<float> decode_chunk(const Decoding& decoding, std::int64_t chunk) {
  const ArchiveHeader& header = decoding.header();
  const std::vector<std::int64_t> tokens = decoding.layout.tokens(chunk);
  const std::vector<std::int64_t> positions = decoding.layout.positions(tokens);
  std::vector<float> values;
  const auto take = [&](Stream, std::int64_t, const auto& of_chunk, const float* decoded) {
    const std::vector<float> kept =
        kept_rows(of_chunk, decoded, header.kv_heads * header.head_size, decoding.tokens);
    values.insert(values.end(), kept.begin(), kept.end());
  };
  for (std::int64_t block = 0; block < decoding.coder.blocks(); ++block)
    if (decoding.coder.has_layers(block, decoding.layers))
      decoding.coder.decode(block, decoding.archive.read(decoding.layout.block(chunk, block)), tokens,
                            positions, to_int(header.step), decoding.layers, take);
  return values;
}

/// Writes what decode_chunk returned.
void write_chunk(const Decoding& decoding, std::int64_t chunk, const float* values, PartWriter& writer) {
  const std::vector<std::int64_t> kept = kept_tokens(decoding.layout.tokens(chunk), decoding.tokens);
  const std::int64_t of_layer =
      static_cast<std::int64_t>(kept.size()) * decoding.header().kv_heads * decoding.header().head_size;
  for (const auto& word : cached_stream_words())
    for (std::int64_t l = 0; l < decoding.layers.count; ++l, values += of_layer)
      writer.write(word.second, decoding.layers.first + l, kept, values);
}

/// Writes the tensors: in rounds of a chunk for each rank, which rank 0 writes. Collective.
void write_tensors(const Decoding& decoding, const std::string& path, KvTensorsWriter::Format format,
                   const Comm& world) {
  std::unique_ptr<PartWriter> writer;
  agree(world, [&] {
    if (!world.is_root()) return;
    writer = std::make_unique<PartWriter>(decoding, path, format);
    writer->write_exact();
  });
  const std::vector<std::int64_t> chunks = chunks_of(decoding);
  const std::size_t ranks = to_size(world.size());
  for (std::size_t first = 0; first < chunks.size(); first += ranks) {
    stop_where_asked(world);
    std::vector<float> mine;
    const std::size_t own = first + to_size(world.rank());
    agree(world, [&] {
      if (own < chunks.size()) mine = decode_chunk(decoding, chunks[own]);
    });
    const std::vector<std::vector<float>> decoded = world.gather(std::move(mine));
    agree(world, [&] {
      for (std::size_t r = 0; writer && first + r < chunks.size() && r < ranks; ++r)
        write_chunk(decoding, chunks[first + r], decoded[r].data(), *writer);
    });
  }
  agree(world, [&] {
    if (writer) writer->close();
  });
}

KvTensorsWriter::Format format_of(const std::string& path) {
  const auto ends_in = [&](const std::string& ending) {
    return path.size() > ending.size() &&
           path.compare(path.size() - ending.size(), ending.size(), ending) == 0;
  };
  if (ends_in(".safetensors")) return KvTensorsWriter::Format::safetensors;
  if (ends_in(".h5") || ends_in(".hdf5")) return KvTensorsWriter::Format::hdf5;
  throw InputError("", "archive.output", printable(path), "names no format",
                   "NAME.safetensors, NAME.h5 or NAME.hdf5");
}

}  // namespace

int decode_archive(const Job& job, const Comm& world, const Log& log) {
  const double start = steady_seconds();
  const InputWatch inputs(job);
  const Job::Archive& archive = job.archive;
  start_threads(world, log);
  std::unique_ptr<const Decoding> decoding;
  KvTensorsWriter::Format format{};
  agree(world, [&] {
    check_target({"archive.output", archive.output, archive.output}, input_files(job));
    check_file_name(archive.output, "archive.output", archive.output);
    format = format_of(archive.output);
    decoding = std::make_unique<Decoding>(archive);
  });
  check_done(world, {archive.input, archive.codec}, log);
  const std::string id = world.broadcast(job_id(), 0);
  try {
    const std::unique_ptr<LockFile> lock = take_lock(archive.output, id, world, log);
    publish(
        world,
        {archive.output, id, sha256_hex(to_ini(job, Command::archive_decode)), lock.get(), /*is_hdf5=*/false},
        [&](const std::string& path) {
          write_tensors(*decoding, path, format, world);
          agree(world, [&] { inputs.check(); });
        },
        [](const std::string& path) { KvTensors{path}; });
  } catch (const Stopped&) {
    if (world.is_root())
      std::fprintf(stderr, "headspan: stopped by a signal: %s is not written\n",
                   escaped(archive.output).c_str());
    return 1;
  }
  if (world.is_root())
    std::printf("tensors=%s layers=%lld tokens=%lld\nstatus=done units=1 skipped=0 seconds=%.1f\n",
                escaped(archive.output).c_str(), static_cast<long long>(decoding->layers.count),
                static_cast<long long>(decoding->tokens.count), steady_seconds() - start);
  return 0;
}

}  // namespace headspan
