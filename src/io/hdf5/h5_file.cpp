#include "io/hdf5/h5_file.h"

#include <algorithm>
#include <cerrno>
#include <limits>
#include <type_traits>
#include <utility>

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/error.h"
#include "base/input_file.h"
#include "dist/comm/agreement.h"
#include "io/hdf5/h5_string.h"
#include "io/hdf5/h5_watch.h"

namespace headspan {
namespace {

constexpr unsigned kOrder = H5P_CRT_ORDER_TRACKED | H5P_CRT_ORDER_INDEXED;

/// Lets HDF5 access files through MPI-IO. Collective. ROMIO, the MPI-IO of MPICH, would read what lies
/// between the pieces of a write and write all at once, under a lock: on a file system without locks it ends
/// the job.
void use_mpi_io(hid_t access, const Comm& comm) {
  MPI_Info hints = MPI_INFO_NULL;
#ifdef ROMIO_VERSION
  HS_MPI(MPI_Info_create(&hints));
  HS_MPI(MPI_Info_set(hints, "romio_ds_write", "disable"));
#endif
  HS_H5(H5Pset_fapl_mpio(access, comm.get(), hints));  // copies the hints
  if (hints != MPI_INFO_NULL) HS_MPI(MPI_Info_free(&hints));
}

/// Returns the access properties: files are written for HDF5 1.8 and later, and read in any version.
H5Handle file_access(const Comm* comm, bool writes) {
  H5Handle access = h5_property_list(H5P_FILE_ACCESS);
  if (writes) HS_H5(H5Pset_libver_bounds(access.get(), H5F_LIBVER_V18, H5F_LIBVER_V18));
  HS_H5(H5Pset_fclose_degree(access.get(), H5F_CLOSE_STRONG));
  // Locks the file if the file system supports that; no error otherwise.
  HS_H5(H5Pset_file_locking(access.get(), true, true));
  if (comm == nullptr) return access;
  use_mpi_io(access.get(), *comm);
  HS_H5(H5Pset_coll_metadata_write(access.get(), true));
  return access;
}

/// Returns the creation properties of a group, or of a file for its root group.
H5Handle ordered_creation(hid_t type) {
  H5Handle creation = h5_creation_list(type);
  HS_H5(H5Pset_link_creation_order(creation.get(), kOrder));
  HS_H5(H5Pset_attr_creation_order(creation.get(), kOrder));
  return creation;
}

/// Creates an empty file with a system call, whose errno HDF5 over MPI-IO would hide. Some bytes must fit, so
/// that a full disk is found before HDF5 writes. O_NONBLOCK: opening a FIFO would wait for a reader.
void create_empty(const std::string& path) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NONBLOCK, 0666);
  if (file < 0) throw_errno("cannot create the file", path);
  constexpr char kBytes[16] = {};
  const bool fits = ::write(file, kBytes, sizeof kBytes) == sizeof kBytes && ::ftruncate(file, 0) == 0;
  const int code = errno;
  ::close(file);
  if (fits) return;
  errno = code;
  throw_errno("cannot write to the file", path);
}

/// Throws Error unless this rank can open the file. Open MPI's collective open never returns if one rank
/// cannot (because its node does not mount the folder, or it has too many open files).
void check_can_open(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) throw_errno("cannot open", path);
  ::close(file);
}

/// Reserves the dataset's bytes and some for metadata after them, so that a full disk, a quota or a size
/// limit fails here, with its errno. This does more than improve the message: Open MPI's collective writes
/// can lose data on a full disk and return success. If the file system cannot reserve, its free space is
/// compared instead.
void reserve(const std::string& path, hid_t dataset) {
  constexpr off_t kMetadata = off_t{1} << 20;
  const hsize_t stored = H5Dget_storage_size(dataset);
  if (stored == 0) return;
  const haddr_t begin = H5Dget_offset(dataset);
  if (begin == HADDR_UNDEF) throw_h5("H5Dget_offset()", __FILE__, __LINE__);
  const auto bytes = static_cast<off_t>(stored) + kMetadata;
  const int file = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (file < 0) throw_errno("cannot write to the file", path);
  int code = 0;
  do {
    code = ::fallocate(file, 0, static_cast<off_t>(begin), bytes) == 0 ? 0 : errno;
  } while (code == EINTR);
  struct statvfs disk {};
  if ((code == EOPNOTSUPP || code == ENOSYS) && ::fstatvfs(file, &disk) == 0)
    code = disk.f_bavail < static_cast<fsblkcnt_t>(bytes) / disk.f_frsize ? ENOSPC : 0;
  ::close(file);
  if (code == 0) return;
  errno = code;
  throw_errno("cannot write " + std::to_string(bytes) + " bytes to the file", path);
}

H5Handle create_attribute(hid_t object, const std::string& name, hid_t type, const H5Handle& space) {
  if (HS_H5(H5Aexists(object, name.c_str())) > 0) HS_H5(H5Adelete(object, name.c_str()));
  return {HS_H5(H5Acreate2(object, name.c_str(), type, space.get(), H5P_DEFAULT, H5P_DEFAULT)), H5Aclose};
}

void write(hid_t object, const std::string& name, const std::string& text) {
  const H5Handle type = h5_string_type(std::max<std::size_t>(1, text.size()));
  HS_H5(H5Tset_strpad(type.get(), H5T_STR_NULLPAD));  // no terminating null: the last byte is text
  const H5Handle attribute =
      create_attribute(object, name, type.get(), H5Handle(HS_H5(H5Screate(H5S_SCALAR)), H5Sclose));
  HS_H5(H5Awrite(attribute.get(), type.get(), text.c_str()));
}

template <class T>
void write(hid_t object, const std::string& name, const std::vector<T>& values) {
  const H5Handle space = h5_dataspace({static_cast<std::int64_t>(values.size())});
  const H5Handle attribute = create_attribute(object, name, h5_type<T>(), space);
  if (!values.empty()) HS_H5(H5Awrite(attribute.get(), h5_type<T>(), values.data()));
}

template <class T>
void write(hid_t object, const std::string& name, T value) {
  const H5Handle attribute =
      create_attribute(object, name, h5_type<T>(), H5Handle(HS_H5(H5Screate(H5S_SCALAR)), H5Sclose));
  HS_H5(H5Awrite(attribute.get(), h5_type<T>(), &value));
}

/// Called by HDF5 on a link to another file, which must not be followed.
herr_t refuse_link(const char*, const char*, const char*, const char*, unsigned*, hid_t, void* is_external) {
  *static_cast<bool*>(is_external) = true;
  return -1;
}

template <class T>
constexpr bool kIsVector = false;
template <class T>
constexpr bool kIsVector<std::vector<T>> = true;

/// Returns whether HDF5 may have clipped a number to the largest T.
template <class T>
bool is_clipped(T value) {
  return std::is_integral_v<T> && value == std::numeric_limits<T>::max();
}

/// Reads an attribute. Messages call it `field`.
template <class T>
T read(hid_t attribute, const std::string& path, const std::string& field) {
  const H5Handle type(HS_H5(H5Aget_type(attribute)), H5Tclose);
  const H5Handle space(HS_H5(H5Aget_space(attribute)), H5Sclose);
  const auto count = static_cast<std::size_t>(HS_H5(H5Sget_simple_extent_npoints(space.get())));
  const H5T_class_t kind = HS_H5(H5Tget_class(type.get()));
  const auto refuse = [&](const char* what, const char* right) {
    throw InputError(path, field, "", what, right);
  };

  if constexpr (std::is_same_v<T, std::string>) {
    if (kind != H5T_STRING || count != 1) refuse("is not a string", "a single string is needed");
    auto text = read_h5_string(path, attribute);
    if (!text) refuse("is a string that is not where the file says", "the file is damaged");
    return *text;
  } else if constexpr (kIsVector<T>) {
    using Element = typename T::value_type;
    if (kind != H5T_INTEGER && (kind != H5T_FLOAT || std::is_integral_v<Element>))
      refuse("is not a list of numbers",
             std::is_integral_v<Element> ? "whole numbers are needed" : "numbers are needed");
    T values(count);
    if (count > 0) HS_H5(H5Aread(attribute, h5_type<Element>(), values.data()));
    if (std::any_of(values.begin(), values.end(), is_clipped<Element>))
      refuse("holds a number above 2^63 - 2", "smaller numbers are needed");
    return values;
  } else {
    const bool fits = kind == H5T_INTEGER || (kind == H5T_FLOAT && std::is_floating_point_v<T>);
    const char* right = std::is_integral_v<T> ? "a whole number is needed" : "a number is needed";
    if (!fits || count != 1)
      refuse(std::is_integral_v<T> ? "is not a whole number" : "is not a number", right);
    T value{};
    HS_H5(H5Aread(attribute, h5_type<T>(), &value));
    if (is_clipped(value)) refuse("is above 2^63 - 2", "a smaller number is needed");
    return value;
  }
}

}  // namespace

/// Runs a local step. Errors name the file; in a file opened for reading they blame its contents.
void H5File::local(const std::string& object, const std::function<void()>& step) const {
  try {
    step();
  } catch (const H5Error& e) {
    if (bytes_) throw_unreadable(e, path_, object);
    throw Error(path_ + ": " + e.what());
  }
}

/// Runs a step on all ranks, which agree on its success.
void H5File::collective(const std::string& object, const std::function<void()>& step) const {
  const auto named = [&] { local(object, step); };
  if (!comm_) return named();
  const H5Watch watch(comm_, path_);
  agree(*comm_, named);
}

H5File H5File::create(const Comm& comm, const std::string& path) { return create(&comm, path); }
H5File H5File::create(const std::string& path) { return create(nullptr, path); }
H5File H5File::open(const Comm& comm, const std::string& path) { return open(&comm, path, H5F_ACC_RDONLY); }
H5File H5File::open(const std::string& path) { return open(nullptr, path, H5F_ACC_RDONLY); }
H5File H5File::edit(const std::string& path) { return open(nullptr, path, H5F_ACC_RDWR); }

H5File H5File::create(const Comm* comm, const std::string& path) {
  H5File created(comm, path);
  created.collective("", [&] {
    silence_h5();
    if (comm == nullptr || comm->is_root()) create_empty(path);
  });
  if (comm != nullptr) created.collective("", [&] { check_can_open(path); });
  created.collective("", [&] {
    const H5Handle creation = ordered_creation(H5P_FILE_CREATE);
    created.file_ =
        H5Handle(HS_H5(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, creation.get(), file_access(comm, true).get())),
                 H5Fclose);
  });
  return created;
}

H5File H5File::open(const Comm* comm, const std::string& path, unsigned flags) {
  H5File opened(comm, path);
  opened.collective("", [&] {
    const InputFile file(path);  // throws if the file is missing, not readable or not regular
    if (flags == H5F_ACC_RDONLY) opened.bytes_ = file.size();
  });
  opened.collective("", [&] {
    silence_h5();
    const H5Handle access = file_access(comm, flags != H5F_ACC_RDONLY);
    opened.file_ = H5Handle(HS_H5(H5Fopen(path.c_str(), flags, access.get())), H5Fclose);
  });
  return opened;
}

/// Runs a local step with properties that refuse links to other files.
void H5File::follow(const std::string& name, const std::function<void(hid_t link_access)>& step) const {
  bool is_external = false;
  local(name, [&] {
    const H5Handle access = h5_property_list(H5P_LINK_ACCESS);
    HS_H5(H5Pset_elink_cb(access.get(), refuse_link, &is_external));
    try {
      step(access.get());
    } catch (const H5Error&) {
      if (!is_external) throw;
      throw InputError(path_, name, "", "is a link to another file", "copy what it names into this file");
    }
  });
}

bool H5File::has(const std::string& name) const {
  if (name == "/") return true;
  if (const auto slash = name.rfind('/'); slash != std::string::npos && slash > 0) {
    const std::string group = name.substr(0, slash);
    if (!has(group) || H5Iget_type(open_object(group).get()) != H5I_GROUP) return false;
  }
  bool found = false;
  follow(name, [&](hid_t access) { found = HS_H5(H5Lexists(id(), name.c_str(), access)) > 0; });
  return found;
}

H5Handle H5File::open_object(const std::string& name) const {
  H5Handle object;
  follow(name, [&](hid_t access) { object = {HS_H5(H5Oopen(id(), name.c_str(), access)), H5Oclose}; });
  return object;
}

void H5File::create_group(const std::string& name) {
  collective(name, [&] {
    const H5Handle creation = ordered_creation(H5P_GROUP_CREATE);
    H5Handle(HS_H5(H5Gcreate2(id(), name.c_str(), H5P_DEFAULT, creation.get(), H5P_DEFAULT)), H5Gclose)
        .close();
  });
}

H5Dataset H5File::create_dataset(const std::string& name, const std::vector<std::int64_t>& shape,
                                 hid_t type) {
  H5Handle dataset;
  collective(name, [&] {
    const H5Handle creation = h5_creation_list(H5P_DATASET_CREATE);
    HS_H5(H5Pset_attr_creation_order(creation.get(), kOrder));
    HS_H5(H5Pset_layout(creation.get(), H5D_CONTIGUOUS));
    HS_H5(H5Pset_alloc_time(creation.get(), H5D_ALLOC_TIME_EARLY));
    const bool numbers = HS_H5(H5Tget_class(type)) != H5T_STRING;  // unwritten strings must be null
    HS_H5(H5Pset_fill_time(creation.get(), numbers ? H5D_FILL_TIME_NEVER : H5D_FILL_TIME_IFSET));
    const H5Handle space = h5_dataspace(shape);
    dataset = H5Handle(
        HS_H5(H5Dcreate2(id(), name.c_str(), type, space.get(), H5P_DEFAULT, creation.get(), H5P_DEFAULT)),
        H5Dclose);
  });
  try {
    if (comm_) agree(*comm_, [&] { comm_->is_root() ? reserve(path_, dataset.get()) : void(); });
  } catch (const AgreedError&) {  // a file with a dataset that has no bytes on the disk cannot be closed
    dataset.close();
    HS_H5(H5Ldelete(id(), name.c_str(), H5P_DEFAULT));
    throw;
  }
  return {std::move(dataset), path_, name, comm_};
}

H5Dataset H5File::open_dataset(const std::string& name) const {
  H5Handle dataset;
  collective(name, [&] {
    dataset = open_object(name);
    if (H5Iget_type(dataset.get()) != H5I_DATASET)
      throw InputError(path_, name, "", "is not a dataset", "a dataset of this name is needed");
    if (bytes_) check_stored(dataset.get(), path_, name, *bytes_);
  });
  return {std::move(dataset), path_, name, comm_};
}

void H5File::create_strings(const std::string& name, std::int64_t count) {
  create_dataset(name, {count}, h5_string_type(H5T_VARIABLE).get());
}

void H5File::write_strings(const std::string& name, const std::vector<std::string>& values) {
  HS_ASSERT(comm_ == nullptr);
  const H5Handle dataset(HS_H5(H5Dopen2(id(), name.c_str(), H5P_DEFAULT)), H5Dclose);
  std::vector<const char*> pointers(values.size());
  std::transform(values.begin(), values.end(), pointers.begin(),
                 [](const std::string& value) { return value.c_str(); });
  HS_H5(H5Dwrite(dataset.get(), h5_string_type(H5T_VARIABLE).get(), H5S_ALL, H5S_ALL, H5P_DEFAULT,
                 pointers.data()));
}

void H5File::write_attribute(const std::string& object, const std::string& name, const H5Value& value) {
  collective(object, [&] {
    const H5Handle owner = open_object(object);
    std::visit([&](const auto& alternative) { write(owner.get(), name, alternative); }, value);
  });
}

template <class T>
std::optional<T> H5File::read_attribute(const std::string& object, const std::string& name) const {
  const std::string field = object == "/" ? name : object + ": " + name;
  const H5Handle owner = open_object(object);
  std::optional<T> value;
  local(field, [&] {
    if (HS_H5(H5Aexists(owner.get(), name.c_str())) == 0) return;
    const H5Handle attribute(HS_H5(H5Aopen(owner.get(), name.c_str(), H5P_DEFAULT)), H5Aclose);
    if (bytes_ && H5Aget_storage_size(attribute.get()) > static_cast<hsize_t>(*bytes_))
      throw InputError(path_, field, "", "is larger than the file", "the file is damaged");
    value = read<T>(attribute.get(), path_, field);
  });
  return value;
}

template std::optional<std::string> H5File::read_attribute(const std::string&, const std::string&) const;
template std::optional<std::int64_t> H5File::read_attribute(const std::string&, const std::string&) const;
template std::optional<double> H5File::read_attribute(const std::string&, const std::string&) const;
template std::optional<std::vector<std::int64_t>> H5File::read_attribute(const std::string&,
                                                                         const std::string&) const;
template std::optional<std::vector<double>> H5File::read_attribute(const std::string&,
                                                                   const std::string&) const;

H5File::~H5File() {
  if (comm_ != nullptr && comm_->size() > 1 && unwinds_alone()) file_.abandon();
}

void H5File::close() {
  try {
    collective("", [&] {
      HS_H5(H5Fflush(id(), H5F_SCOPE_GLOBAL));
      if (!h5_close_failure().empty()) throw Error(path_ + ": " + h5_close_failure());
    });
    collective("", [&] { file_.close(); });
  } catch (const AgreedError& e) {
    abandon_file(*comm_, path_, e.what());
  }
}

}  // namespace headspan
