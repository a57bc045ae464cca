#include "io/archive/kv_tensors.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/checked.h"
#include "base/input_file.h"
#include "base/output_file.h"
#include "base/printable.h"
#include "io/checkpoint/safetensors.h"
#include "io/hdf5/h5_file.h"

namespace headspan {
namespace {

constexpr const char* kRight = "tensors k and v, [layer, head, token, d], of the same shape and type";

[[noreturn]] void refuse(const std::string& path, const std::string& tensor, const std::string& value,
                         const std::string& what) {
  throw InputError(path, tensor, value, what, kRight);
}

bool is_hdf5(const std::string& path) {
  constexpr std::array<std::uint8_t, 8> kSignature{0x89, 'H', 'D', 'F', '\r', '\n', 0x1a, '\n'};
  const InputFile file(path);
  std::array<std::uint8_t, 8> start{};
  if (file.size() >= 8) file.read(0, 8, start.data());
  return start == kSignature;
}

/// Sets the shape from that of k, or compares that of v with it.
void take_shape(const std::string& path, const std::string& tensor, const std::vector<std::int64_t>& extents,
                ElementType type, KvShape& shape) {
  const std::string found = printable(extents);
  if (extents.size() != 4) refuse(path, tensor, found, "has not four dimensions");
  const KvShape own{extents[0], extents[1], extents[2], extents[3], type};
  if (own.layers < 1 || own.heads < 1 || own.head_size < 1) refuse(path, tensor, found, "is empty");
  if (shape.layers == 0) shape = own;
  if (own.layers != shape.layers || own.heads != shape.heads || own.tokens != shape.tokens ||
      own.head_size != shape.head_size)
    refuse(path, tensor, found, "has another shape than k");
  if (own.type != shape.type)
    refuse(path, tensor, word_of(element_words(), type), "is of another type than k");
}

/// Returns HDF5's type of numbers as they are in memory: little-endian, float16 too.
H5Handle h5_element_type(ElementType type) {
  H5Handle found(HS_H5(H5Tcopy(H5T_IEEE_F32LE)), H5Tclose);
  if (type == ElementType::float32) return found;
  HS_H5(H5Tset_fields(found.get(), 15, 10, 5, 0,
                      10));  // places of sign, exponent and fraction, and their sizes
  HS_H5(H5Tset_size(found.get(), 2));
  HS_H5(H5Tset_ebias(found.get(), 15));
  return found;
}

/// Selects a piece of the file's space, and returns a space for it in memory.
H5Handle select(const H5Handle& space, const KvPiece& piece, std::int64_t d) {
  const std::array<hsize_t, 4> start{static_cast<hsize_t>(piece.layer), static_cast<hsize_t>(piece.head),
                                     static_cast<hsize_t>(piece.tokens.first), 0},
      count{1, 1, static_cast<hsize_t>(piece.tokens.count), static_cast<hsize_t>(d)};
  HS_H5(H5Sselect_hyperslab(space.get(), H5S_SELECT_SET, start.data(), nullptr, count.data(), nullptr));
  return h5_dataspace({piece.tokens.count, d});
}

/// The dtypes of safetensors files.
const WordList<ElementType>& safetensors_words() {
  static const WordList<ElementType> words{
      {"F16", ElementType::float16}, {"BF16", ElementType::bfloat16}, {"F32", ElementType::float32}};
  return words;
}

/// Returns all bytes before the numbers, a multiple of 8.
std::string safetensors_header(const KvShape& shape, std::int64_t of_stream) {
  nlohmann::json header;
  for (const auto& [name, stream] : cached_stream_words()) {
    const std::int64_t first = stream == Stream::k ? 0 : of_stream;
    header[name] = {{"dtype", word_of(safetensors_words(), shape.type)},
                    {"shape", {shape.layers, shape.heads, shape.tokens, shape.head_size}},
                    {"data_offsets", {first, first + of_stream}}};
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  std::string bytes;
  for (int byte = 0; byte < 8; ++byte)
    bytes.push_back(static_cast<char>(std::uint64_t{text.size()} >> (8 * byte)));
  return bytes + text;
}

}  // namespace

KvTensors::KvTensors(const std::string& path) : path_(path) {
  if (is_hdf5(path))
    open_hdf5();
  else
    open_safetensors();
}

void KvTensors::open_safetensors() {
  const auto file = std::make_shared<SafetensorsFile>(SafetensorsFile::open(path_));
  std::map<Stream, TensorEntry> entries;
  for (const auto& [name, stream] : cached_stream_words()) {
    const auto found = file->tensors().find(name);
    if (found == file->tensors().end()) refuse(path_, name, "", "is missing");
    const std::optional<ElementType> type = value_of(safetensors_words(), found->second.dtype);
    if (!type) refuse(path_, name, found->second.dtype, "is not F16, BF16 or F32");
    take_shape(path_, name, found->second.shape, *type, shape_);
    entries.emplace(stream, found->second);
  }
  read_ = [file, entries = std::move(entries), shape = shape_](const KvPiece& piece, float* to) {
    const std::int64_t row = shape.head_size * element_bytes(shape.type);
    const std::int64_t first = (piece.layer * shape.heads + piece.head) * shape.tokens + piece.tokens.first;
    std::vector<std::uint8_t> bytes(to_size(piece.tokens.count * row));
    file->read(entries.at(piece.stream), first * row, piece.tokens.count * row, bytes.data());
    widen(shape.type, bytes.data(), piece.tokens.count * shape.head_size, to);
  };
}

void KvTensors::open_hdf5() {
  const auto file = std::make_shared<H5File>(H5File::open(path_));
  for (const auto& word : cached_stream_words()) {
    const std::string& name = word.first;
    if (!file->has(name)) refuse(path_, name, "", "is missing");
    const H5Dataset dataset = file->open_dataset(name);
    const bool is_float = dataset.type_class() == H5T_FLOAT;
    if (!is_float || (dataset.element_bytes() != 2 && dataset.element_bytes() != 4))
      refuse(path_, name, "", "is not of float16 or float32");
    take_shape(path_, name, dataset.shape(),
               dataset.element_bytes() == 2 ? ElementType::float16 : ElementType::float32, shape_);
  }
  read_ = [file, path = path_, d = shape_.head_size](const KvPiece& piece, float* to) {
    const std::string& name = word_of(cached_stream_words(), piece.stream);
    try {
      const H5Handle dataset = file->open_object(name);
      const H5Handle space(HS_H5(H5Dget_space(dataset.get())), H5Sclose);
      const H5Handle memory = select(space, piece, d);
      HS_H5(H5Dread(dataset.get(), H5T_NATIVE_FLOAT, memory.get(), space.get(), H5P_DEFAULT, to));
    } catch (const H5Error& error) {
      throw_unreadable(error, path, name);
    }
  };
}

void KvTensors::read(Stream stream, std::int64_t layer, const std::vector<std::int64_t>& tokens,
                     float* to) const {
  if (tokens.empty()) return;
  const std::int64_t d = shape_.head_size;
  const Range range{tokens.front(), tokens.back() - tokens.front() + 1};
  std::vector<float> values(to_size(range.count * d));
  for (std::int64_t head = 0; head < shape_.heads; ++head) {
    read_({stream, layer, head, range}, values.data());
    for (std::size_t t = 0; t < tokens.size(); ++t) {
      const float* const from = &values[to_size((tokens[t] - range.first) * d)];
      for (std::int64_t i = 0; i < d; ++i)
        if (!std::isfinite(from[i]))
          throw InputError(path_,
                           word_of(cached_stream_words(), stream) +
                               printable(std::vector<std::int64_t>{layer, head, tokens[t], i}),
                           printable(from[i]), "is not a finite number");
      std::copy_n(from, d, to + (static_cast<std::int64_t>(t) * shape_.heads + head) * d);
    }
  }
}

KvTensorsWriter::KvTensorsWriter(const std::string& path, const KvShape& shape, Format format)
    : shape_(shape) {
  if (format == Format::hdf5)
    create_hdf5(path);
  else
    create_safetensors(path);
}

void KvTensorsWriter::create_safetensors(const std::string& path) {
  const std::int64_t row = shape_.head_size * element_bytes(shape_.type),
                     of_stream = shape_.layers * shape_.heads * shape_.tokens * row;
  const std::string header = safetensors_header(shape_, of_stream);
  const auto start = static_cast<std::int64_t>(header.size());
  const auto file = std::make_shared<OutputFile>(path);
  file->reserve(start + 2 * of_stream);
  file->write(0, header.data(), start);
  write_ = [file, shape = shape_, row, start, of_stream](const KvPiece& piece, const std::uint8_t* bytes) {
    const std::int64_t first = (piece.layer * shape.heads + piece.head) * shape.tokens + piece.tokens.first;
    file->write(start + (piece.stream == Stream::v ? of_stream : 0) + first * row, bytes,
                piece.tokens.count * row);
  };
  close_ = [file] { file->close(); };
}

void KvTensorsWriter::create_hdf5(const std::string& path) {
  if (shape_.type == ElementType::bfloat16)
    throw InputError(path, "", "", "cannot hold bfloat16, which HDF5 has not", "name a .safetensors file");
  const auto file = std::make_shared<H5File>(H5File::create(path));
  const auto type = std::make_shared<H5Handle>(h5_element_type(shape_.type));
  const H5Handle space = h5_dataspace({shape_.layers, shape_.heads, shape_.tokens, shape_.head_size});
  const H5Handle creation = h5_creation_list(H5P_DATASET_CREATE);
  HS_H5(H5Pset_alloc_time(creation.get(), H5D_ALLOC_TIME_EARLY));
  HS_H5(H5Pset_fill_time(creation.get(), H5D_FILL_TIME_NEVER));
  for (const auto& word : cached_stream_words())
    H5Handle(HS_H5(H5Dcreate(file->id(), word.first.c_str(), type->get(), space.get(), H5P_DEFAULT,
                             creation.get(), H5P_DEFAULT)),
             H5Dclose)
        .close();
  write_ = [file, type, d = shape_.head_size](const KvPiece& piece, const std::uint8_t* bytes) {
    const H5Handle dataset = file->open_object(word_of(cached_stream_words(), piece.stream));
    const H5Handle found(HS_H5(H5Dget_space(dataset.get())), H5Sclose), memory = select(found, piece, d);
    HS_H5(H5Dwrite(dataset.get(), type->get(), memory.get(), found.get(), H5P_DEFAULT, bytes));
  };
  close_ = [file] { file->close(); };
}

void KvTensorsWriter::write(Stream stream, std::int64_t layer, const std::vector<std::int64_t>& tokens,
                            const float* values) {
  const std::int64_t d = shape_.head_size, row = d * element_bytes(shape_.type);
  std::vector<std::uint8_t> bytes(tokens.size() * to_size(row));
  for (std::int64_t head = 0; head < shape_.heads; ++head) {
    for (std::size_t t = 0; t < tokens.size(); ++t)
      narrow(shape_.type, values + (static_cast<std::int64_t>(t) * shape_.heads + head) * d, d,
             &bytes[t * to_size(row)]);
    for (std::size_t t = 0; t < tokens.size();) {  // runs of tokens that follow each other
      std::size_t end = t + 1;
      while (end < tokens.size() && tokens[end] == tokens[end - 1] + 1) ++end;
      write_({stream, layer, head, {tokens[t], static_cast<std::int64_t>(end - t)}},
             &bytes[t * to_size(row)]);
      t = end;
    }
  }
}

void KvTensorsWriter::close() { close_(); }

}  // namespace headspan
