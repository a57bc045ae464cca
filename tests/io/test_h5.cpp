#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <set>

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "common_folder.h"
#include "dist/comm/agreement.h"
#include "io/hdf5/h5_file.h"
#include "support/input_error.h"

namespace headspan {
namespace {

class H5Test : public testing::Test {
 protected:
  Comm comm_ = Comm::duplicate(MPI_COMM_WORLD);
  CommonFolder folder_{comm_, "h5"};

  /// The names of the files in the folder.
  std::set<std::string> names() const {
    std::set<std::string> found;
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path("")))
      found.insert(entry.path().filename());
    return found;
  }
};

/// The rows of this rank: none on rank 0 if there are others, uneven shares on the others.
struct Share {
  std::int64_t first, count;
};

Share share_of(const Comm& comm, std::int64_t rows) {
  if (comm.size() == 1) return {0, rows};
  if (comm.rank() == 0) return {0, 0};
  const std::int64_t parts = comm.size() - 1, part = comm.rank() - 1;
  const std::int64_t first = rows * part * part / (parts * parts),
                     end = rows * (part + 1) * (part + 1) / (parts * parts);
  return {first, end - first};
}

template <class T>
void expect_round_trip(const Comm& comm, const std::string& path) {
  const std::int64_t rows = 37, columns = 5;
  const Share share = share_of(comm, rows);
  std::vector<T> values(static_cast<std::size_t>(share.count * columns));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<T>(share.first * columns + static_cast<int>(i));

  std::uint32_t causes = 0;
  {
    H5File file = H5File::create(comm, path);
    file.create_group("k");
    H5Dataset dataset = file.create_dataset<T>("k/values", {rows, columns});
    dataset.write_rows(values.data(), share.first, share.count);
    causes = dataset.independence_causes();
    dataset = file.open_dataset("k/values");
    file.close();
  }
  std::vector<T> all(static_cast<std::size_t>(rows * columns));
  H5File::open(path).open_dataset("k/values").read_rows(0, rows, all.data());
  std::vector<T> mine(values.size());
  H5File shared = H5File::open(comm, path);
  shared.open_dataset("k/values").read_rows(share.first, share.count, mine.data());

  EXPECT_EQ(causes, 0u);
  for (std::size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i], static_cast<T>(i));
  EXPECT_EQ(mine, values);
  comm.barrier();
}

TEST_F(H5Test, EveryElementTypeComesBackAndIsWrittenCollectively) {
  expect_round_trip<double>(comm_, folder_.path("double.h5"));
  expect_round_trip<float>(comm_, folder_.path("float.h5"));
  expect_round_trip<std::int64_t>(comm_, folder_.path("int64.h5"));
  expect_round_trip<std::int32_t>(comm_, folder_.path("int32.h5"));
  expect_round_trip<std::uint8_t>(comm_, folder_.path("uint8.h5"));
}

TEST_F(H5Test, NothingStandsBesideAnOpenFileThatAKillWouldLeave) {
  const std::string path = folder_.path("alone.h5");
  H5File file = H5File::create(comm_, path);
  comm_.barrier();
  EXPECT_EQ(names(), std::set<std::string>{"alone.h5"});
  file.close();
  file = H5File::open(comm_, path);
  comm_.barrier();
  EXPECT_EQ(names(), std::set<std::string>{"alone.h5"});
}

TEST_F(H5Test, AttributesComeBack) {
  const std::string path = folder_.path("attributes.h5");
  const std::string long_text(100000, 'x');  // beyond the 64 KiB of a plain attribute
  std::vector<std::int64_t> many(20000);     // beyond it too: the layers of as many heads
  std::iota(many.begin(), many.end(), 0);

  H5File file = H5File::create(comm_, path);
  file.create_group("k");
  file.write_attribute("/", "text", std::string("R² of Köpfe"));
  file.write_attribute("/", "long", long_text);
  file.write_attribute("/", "many", many);
  file.write_attribute("k", "many", many);
  file.write_attribute("k", "empty", std::string());
  file.write_attribute("k", "whole", std::int64_t{1} << 62);
  file.write_attribute("k", "real", 0.1);
  file.write_attribute("k", "wholes", std::vector<std::int64_t>{3, -4});
  file.write_attribute("k", "reals", std::vector<double>{0.5, 0.1});
  file.write_attribute("k", "real", 0.2);  // replaces
  file.close();

  const H5File read = H5File::open(path);
  EXPECT_EQ(read.read_attribute<std::string>("/", "text"), "R² of Köpfe");
  EXPECT_EQ(read.read_attribute<std::string>("/", "long"), long_text);
  EXPECT_EQ(read.read_attribute<std::vector<std::int64_t>>("/", "many"), many);
  EXPECT_EQ(read.read_attribute<std::vector<std::int64_t>>("k", "many"), many);
  EXPECT_EQ(read.read_attribute<std::string>("k", "empty"), "");
  EXPECT_EQ(read.read_attribute<std::int64_t>("k", "whole"), std::int64_t{1} << 62);
  EXPECT_EQ(read.read_attribute<double>("k", "real"), 0.2);
  EXPECT_EQ(read.read_attribute<std::vector<std::int64_t>>("k", "wholes"),
            (std::vector<std::int64_t>{3, -4}));
  EXPECT_EQ(read.read_attribute<std::vector<double>>("k", "reals"), (std::vector<double>{0.5, 0.1}));
  EXPECT_EQ(read.read_attribute<std::string>("k", "nothing"), std::nullopt);
  EXPECT_EQ(input_error_of([&] { read.read_attribute<std::int64_t>("k", "real"); }),
            path + ": k: real: is not a whole number; a whole number is needed");
  EXPECT_TRUE(read.has("k"));
  EXPECT_FALSE(read.has("k/none"));
  EXPECT_FALSE(read.has("none/none"));
}

/// Writes a file with strings of variable length, as h5py does.
void write_variable_strings(const std::string& path, const std::vector<std::string>& texts) {
  H5File file = H5File::create(path);
  const H5Handle type = h5_string_type(H5T_VARIABLE), space(HS_H5(H5Screate(H5S_SCALAR)), H5Sclose);
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const H5Handle attribute(HS_H5(H5Acreate2(file.id(), std::to_string(i).c_str(), type.get(), space.get(),
                                              H5P_DEFAULT, H5P_DEFAULT)),
                             H5Aclose);
    const char* text = texts[i].c_str();
    HS_H5(H5Awrite(attribute.get(), type.get(), &text));
  }
  file.close();
}

TEST_F(H5Test, StringsOfVariableLengthAreRead) {
  const std::string path = folder_.path("variable" + std::to_string(comm_.rank()) + ".h5");
  const std::vector<std::string> texts{"k", "", "R² of Köpfe", std::string(100000, 'x'), "12345678", "last"};

  write_variable_strings(path, texts);

  const H5File read = H5File::open(path);
  for (std::size_t i = 0; i < texts.size(); ++i)
    EXPECT_EQ(read.read_attribute<std::string>("/", std::to_string(i)), texts[i]);
}

TEST_F(H5Test, WrittenStringsHaveAFixedLength) {
  const std::string path = folder_.path("fixed.h5");

  H5File file = H5File::create(comm_, path);
  file.write_attribute("/", "text", std::string("R² of Köpfe"));
  file.close();

  const H5File read = H5File::open(path);
  const H5Handle attribute(HS_H5(H5Aopen(read.id(), "text", H5P_DEFAULT)), H5Aclose);
  const H5Handle type(HS_H5(H5Aget_type(attribute.get())), H5Tclose);
  EXPECT_EQ(H5Tis_variable_str(type.get()), 0);
  EXPECT_EQ(H5Tget_size(type.get()), std::string("R² of Köpfe").size());
  comm_.barrier();
}

TEST_F(H5Test, LongTransfersAreSplitIntoAsManyChunksOnAllRanks) {
  const std::string path = folder_.path("chunks.h5");
  const std::int64_t columns = 8 << 20,
                     rows = 11;  // 8 MiB per row, 8 rows per chunk: only the last rank needs two
  const bool last = comm_.rank() == comm_.size() - 1;
  std::vector<std::uint8_t> values(last ? static_cast<std::size_t>(rows * columns) : 0);
  for (std::size_t i = 0; i < values.size(); i += 4096) values[i] = static_cast<std::uint8_t>(i / 4096 % 251);

  {
    H5File file = H5File::create(comm_, path);
    file.create_dataset<std::uint8_t>("values", {rows, columns})
        .write_rows(values.data(), 0, last ? rows : 0);
    file.close();
  }
  std::vector<std::uint8_t> back(values.size());
  H5File::open(comm_, path).open_dataset("values").read_rows(0, last ? rows : 0, back.data());

  EXPECT_TRUE(back == values);
}

TEST_F(H5Test, FailuresNameTheFileOnAllRanks) {
  const std::string missing = folder_.path("no_folder/file.h5");

  std::string made, opened;
  try {
    H5File::create(comm_, missing);
  } catch (const AgreedError& e) {
    made = e.what();
  }
  try {
    H5File::open(missing);
  } catch (const InputError& e) {
    opened = e.what();
  }

  EXPECT_EQ(made, "rank 0: cannot create the file: " + missing + ": No such file or directory");
  EXPECT_NE(opened.find("No such file or directory"), std::string::npos) << opened;
  EXPECT_NE(opened.find(missing), std::string::npos) << opened;
}

/// Opening it would wait for a reader.
TEST_F(H5Test, AFifoIsNotWrittenTo) {
  const std::string path = folder_.path("fifo");
  ASSERT_EQ(comm_.is_root() ? ::mkfifo(path.c_str(), 0666) : 0, 0);

  std::string made;
  try {
    H5File::create(comm_, path);
  } catch (const AgreedError& e) {
    made = e.what();
  }

  EXPECT_EQ(made, "rank 0: cannot create the file: " + path + ": No such device or address");
}

/// Creates a file with a sparse dataset, which takes disk space only where something is written.
void make_sparse(const std::string& path, const std::string& name, const std::vector<hsize_t>& shape) {
  const H5Handle file(HS_H5(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT)), H5Fclose);
  const H5Handle space(HS_H5(H5Screate_simple(static_cast<int>(shape.size()), shape.data(), nullptr)),
                       H5Sclose);
  const H5Handle creation = h5_property_list(H5P_DATASET_CREATE);
  HS_H5(H5Pset_alloc_time(creation.get(), H5D_ALLOC_TIME_EARLY));
  HS_H5(H5Pset_fill_time(creation.get(), H5D_FILL_TIME_NEVER));
  H5Handle(HS_H5(H5Dcreate2(file.get(), name.c_str(), H5T_NATIVE_FLOAT, space.get(), H5P_DEFAULT,
                            creation.get(), H5P_DEFAULT)),
           H5Dclose)
      .close();
}

/// Rows beyond 2^31 bytes, 2^31 elements and 2^31 rows.
TEST_F(H5Test, TransfersRowsBeyond32Bits) {
  const std::string path = folder_.path("far.h5");
  const std::int64_t rows = (std::int64_t{1} << 31) + 100, columns = 3, count = 5 * comm_.size();
  std::vector<float> values(static_cast<std::size_t>(count * columns));
  std::iota(values.begin(), values.end(), 1.0F);
  if (comm_.is_root()) {
    make_sparse(path, "values", {static_cast<hsize_t>(rows), static_cast<hsize_t>(columns)});
    H5File::edit(path).open_dataset("values").write_rows(values.data(), rows - count, count);
  }
  comm_.barrier();

  std::vector<float> all(values.size()), mine(static_cast<std::size_t>(5 * columns));
  H5File::open(path).open_dataset("values").read_rows(rows - count, count, all.data());
  H5File shared = H5File::open(comm_, path);
  shared.open_dataset("values").read_rows(rows - count + 5 * comm_.rank(), 5, mine.data());

  EXPECT_EQ(all, values);
  EXPECT_TRUE(std::equal(mine.begin(), mine.end(), values.begin() + 5 * columns * comm_.rank()));
}

}  // namespace
}  // namespace headspan
