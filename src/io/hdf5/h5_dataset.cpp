#include "io/hdf5/h5_dataset.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include <unistd.h>

#include "base/checked.h"
#include "base/printable.h"
#include "dist/comm/agreement.h"
#include "io/hdf5/h5_watch.h"

namespace headspan {
namespace {

constexpr std::int64_t kChunkBytes = std::int64_t{1} << 26;  // transferred by one call
constexpr std::int64_t kLargestRow = std::int64_t{1} << 30;  // MPI-IO counts bytes in an int

/// Makes the transfer collective, but lets each rank move its own bytes. A range of rows is contiguous in the
/// file, so that two-phase I/O would only slow the transfer down; and with Open MPI 4.1 two-phase I/O does
/// not report a failing write on four or more ranks.
void set_collective(const H5Handle& plist) {
  HS_H5(H5Pset_dxpl_mpio(plist.get(), H5FD_MPIO_COLLECTIVE));
  HS_H5(H5Pset_dxpl_mpio_collective_opt(plist.get(), H5FD_MPIO_INDIVIDUAL_IO));
}

std::vector<hsize_t> extents_of(hid_t dataset) {
  const H5Handle space(HS_H5(H5Dget_space(dataset)), H5Sclose);
  std::vector<hsize_t> extents(static_cast<std::size_t>(HS_H5(H5Sget_simple_extent_ndims(space.get()))));
  if (!extents.empty()) HS_H5(H5Sget_simple_extent_dims(space.get(), extents.data(), nullptr));
  return extents;
}

/// Returns whether a file of `file_bytes` bytes can hold an array, compressed as far as deflate can at best.
bool fit(const std::vector<hsize_t>& extents, std::size_t value_bytes, std::int64_t file_bytes) {
  constexpr hsize_t kLargestRatio = 1032;
  hsize_t values = (static_cast<hsize_t>(file_bytes) / value_bytes + 1) * kLargestRatio;
  for (const hsize_t extent : extents) {
    if (extent > values) return false;
    values /= std::max<hsize_t>(1, extent);
  }
  return true;
}

/// Returns whether all of a dataset, or each of its chunks, is allocated in the file.
bool is_allocated(hid_t dataset, hid_t creation, const std::vector<hsize_t>& extents) {
  if (HS_H5(H5Pget_layout(creation)) != H5D_CHUNKED) {
    H5D_space_status_t status = H5D_SPACE_STATUS_ERROR;
    HS_H5(H5Dget_space_status(dataset, &status));
    return status == H5D_SPACE_STATUS_ALLOCATED;
  }
  std::vector<hsize_t> chunk(extents.size());
  HS_H5(H5Pget_chunk(creation, static_cast<int>(chunk.size()), chunk.data()));
  hsize_t needed = 1, stored = 0;
  for (std::size_t i = 0; i < chunk.size(); ++i) needed *= (extents[i] + chunk[i] - 1) / chunk[i];
  const H5Handle space(HS_H5(H5Dget_space(dataset)), H5Sclose);
  HS_H5(H5Dget_num_chunks(dataset, space.get(), &stored));
  return stored == needed;
}

}  // namespace

void check_stored(hid_t dataset, const std::string& path, const std::string& name, std::int64_t file_bytes) {
  const H5Handle creation(HS_H5(H5Dget_create_plist(dataset)), H5Pclose);
  if (HS_H5(H5Pget_layout(creation.get())) == H5D_VIRTUAL || HS_H5(H5Pget_external_count(creation.get())) > 0)
    throw InputError(path, name, "", "is stored in other files", "copy its values into this file");
  const std::vector<hsize_t> extents = extents_of(dataset);
  const H5Handle type(HS_H5(H5Dget_type(dataset)), H5Tclose);
  const bool empty = std::find(extents.begin(), extents.end(), hsize_t{0}) != extents.end();
  if (!fit(extents, h5_type_bytes(type.get()), file_bytes) ||
      !(empty || is_allocated(dataset, creation.get(), extents)))
    throw InputError(path, name, "", "has values that the file does not hold", "write all of its values");
}

void abandon_file(const Comm& comm, const std::string& path, const std::string& why) {
  if (comm.is_root()) {
    ::unlink(path.c_str());
    std::fprintf(stderr, "headspan: %s\n", escaped(why).c_str());
    end_job();
  }
  while (true) ::pause();  // until the abort ends this rank too
}

H5Dataset::H5Dataset(H5Handle dataset, const std::string& path, const std::string& name, const Comm* comm)
    : dataset_(std::move(dataset)), path_(path), name_(name), comm_(comm) {
  const std::vector<hsize_t> extents = extents_of(dataset_.get());
  shape_.assign(extents.begin(), extents.end());
}

H5T_class_t H5Dataset::type_class() const {
  const H5Handle type(HS_H5(H5Dget_type(dataset_.get())), H5Tclose);
  return HS_H5(H5Tget_class(type.get()));
}

std::int64_t H5Dataset::element_bytes() const {
  const H5Handle type(HS_H5(H5Dget_type(dataset_.get())), H5Tclose);
  return static_cast<std::int64_t>(h5_type_bytes(type.get()));
}

void H5Dataset::write(const void* rows, std::int64_t first, std::int64_t count, hid_t type) {
  const H5Handle stored(HS_H5(H5Dget_type(dataset_.get())), H5Tclose);
  HS_ASSERT(HS_H5(H5Tequal(stored.get(), type)) > 0);
  const auto move = [&](const Chunk& chunk) {
    HS_H5(H5Dwrite(dataset_.get(), type, chunk.memory, chunk.file, chunk.transfer_plist,
                   static_cast<const char*>(rows) + chunk.offset));
  };
  const H5Watch watch(comm_, path_);
  try {
    transfer(first, count, type, move);
  } catch (const AgreedError& e) {
    abandon_file(*comm_, path_, e.what());
  }
}

void H5Dataset::read(void* rows, std::int64_t first, std::int64_t count, hid_t type) {
  const H5T_class_t stored = type_class(), requested = HS_H5(H5Tget_class(type));
  if (stored != requested && (stored != H5T_INTEGER || requested != H5T_FLOAT))
    throw InputError(path_, name_, "",
                     std::string("does not hold ") + (requested == H5T_FLOAT ? "numbers" : "integers"),
                     "the file is damaged or something else");
  transfer(first, count, type, [&](const Chunk& chunk) {
    try {
      HS_H5(H5Dread(dataset_.get(), type, chunk.memory, chunk.file, chunk.transfer_plist,
                    static_cast<char*>(rows) + chunk.offset));
    } catch (const H5Error& e) {
      throw_unreadable(e, path_, name_);
    }
  });
}

std::int64_t H5Dataset::row_bytes(hid_t type) const {
  auto bytes = static_cast<std::int64_t>(h5_type_bytes(type));
  for (std::size_t i = 1; i < shape_.size(); ++i) bytes = checked_mul(bytes, shape_[i], name_.c_str());
  if (bytes > kLargestRow)
    throw InputError(path_, name_, "", "has rows of " + std::to_string(bytes) + " bytes",
                     "rows of at most " + std::to_string(kLargestRow) + " bytes can be moved");
  return bytes;
}

/// Transfers chunks of about kChunkBytes, the same number on all ranks (a rank without rows selects none).
/// The ranks agree on success after each chunk, because a transfer can fail on a single rank.
void H5Dataset::transfer(std::int64_t first, std::int64_t count, hid_t type,
                         const std::function<void(const Chunk&)>& move) {
  HS_ASSERT(!shape_.empty() && first >= 0 && count >= 0 && first + count <= shape_[0]);
  const std::int64_t bytes = row_bytes(type);
  const std::int64_t step = std::max<std::int64_t>(1, kChunkBytes / std::max<std::int64_t>(bytes, 1));
  const std::int64_t max_count = comm_ ? comm_->max(count) : count;
  for (std::int64_t done = 0; done < max_count; done += step) {
    Chunk chunk{};
    chunk.count = std::clamp<std::int64_t>(count - done, 0, step);
    chunk.first = chunk.count > 0 ? first + done : 0;
    chunk.offset = chunk.count > 0 ? done * bytes : 0;
    const auto transfer_named = [&] {
      try {
        transfer_chunk(chunk, move);
      } catch (const H5Error& e) {
        throw Error(path_ + ": " + name_ + ": " + e.what());
      }
    };
    comm_ ? agree(*comm_, transfer_named) : transfer_named();
  }
}

void H5Dataset::transfer_chunk(Chunk chunk, const std::function<void(const Chunk&)>& move) {
  std::vector<std::int64_t> extents = shape_;
  extents[0] = chunk.count;
  const H5Handle memory = h5_dataspace(extents);
  const H5Handle file(HS_H5(H5Dget_space(dataset_.get())), H5Sclose);
  if (chunk.count == 0) {
    HS_H5(H5Sselect_none(file.get()));
  } else {
    std::vector<hsize_t> start(shape_.size(), 0);
    start[0] = static_cast<hsize_t>(chunk.first);
    const std::vector<hsize_t> block(extents.begin(), extents.end());
    HS_H5(H5Sselect_hyperslab(file.get(), H5S_SELECT_SET, start.data(), nullptr, block.data(), nullptr));
  }
  const H5Handle plist = h5_property_list(H5P_DATASET_XFER);
  if (comm_) set_collective(plist);
  chunk.memory = memory.get();
  chunk.file = file.get();
  chunk.transfer_plist = plist.get();
  move(chunk);
  if (!comm_) return;
  std::uint32_t on_this_rank = 0, on_any_rank = 0;
  HS_H5(H5Pget_mpio_no_collective_cause(plist.get(), &on_this_rank, &on_any_rank));
  independence_causes_ |= on_any_rank;
}

}  // namespace headspan
