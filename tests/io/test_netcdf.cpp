#include <cmath>

#include <gtest/gtest.h>

#include "common_folder.h"
#include "dist/comm/agreement.h"
#include "io/hdf5/netcdf.h"
#include "python.h"

namespace headspan {
namespace {

constexpr std::int64_t kHeads = 7, kHeadSize = 3, kCount = 2;

class NetcdfTest : public testing::Test {
 protected:
  Comm comm_ = Comm::duplicate(MPI_COMM_WORLD);
  CommonFolder folder_{comm_, "netcdf"};
};

std::vector<std::int64_t> counted(std::int64_t count, std::int64_t from = 0) {
  std::vector<std::int64_t> values;
  for (std::int64_t i = 0; i < count; ++i) values.push_back(from + i);
  return values;
}

/// Writes a [heads, columns] array with the values f(i, j), of which the last rank has the first rows.
template <class T, class F>
void write_rows(NetcdfFile& file, const Comm& comm, const std::string& path,
                const std::vector<std::string>& dimensions, std::int64_t columns, const F& f,
                const NetcdfAttributes& attributes = {}) {
  const std::int64_t block = comm.size() - 1 - comm.rank(), share = kHeads / comm.size() + 1;
  const std::int64_t first = std::min(kHeads, block * share), count = std::min(kHeads, first + share) - first;
  std::vector<T> rows;
  for (std::int64_t i = first; i < first + count; ++i)
    for (std::int64_t j = 0; j < columns; ++j) rows.push_back(f(i, j));
  file.write(path, dimensions, rows.data(), first, count, attributes);
}

void write_stream(NetcdfFile& file, const Comm& comm) {
  file.define_dimension("k/target", counted(kHeads), {{"long_name", "predicted head"}});
  file.define_dimension("k/source", counted(kHeads));
  file.define_dimension("k/count", counted(kCount, 1));
  file.define_dimension("k/coordinate", kHeadSize);
  file.define_dimension("k/layer", counted(1));
  file.define_dimension("k/head", counted(kHeads));
  file.define_coordinate("k/target_layer", "target", counted(kHeads, 10));
  file.define_coordinate("k/source_layer", "source", counted(kHeads, 20));
  write_rows<double>(
      file, comm, "k/r2", {"target", "source"}, kHeads,
      [](auto i, auto j) { return i == j ? NAN : static_cast<double>(i) + static_cast<double>(j) / 1000; },
      {{"long_name", "in-sample R²"}, {"units", "1"}});
  write_rows<std::uint8_t>(
      file, comm, "k/status", {"target", "source"}, kHeads,
      [](auto i, auto j) { return static_cast<std::uint8_t>(i == j ? 16 : (i + j) % 4); },
      flag_attributes<std::uint8_t>({{1, "deficient_source"}, {2, "constant_target"}, {16, "not_computed"}}));
  write_rows<float>(file, comm, "k/mean", {"target", "coordinate"}, kHeadSize,
                    [](auto i, auto j) { return static_cast<float>(10 * i + j); });
  write_rows<std::int32_t>(file, comm, "k/references", {"target", "count"}, kCount,
                           [](auto i, auto j) { return static_cast<std::int32_t>(i - j); });
  file.write_root("k/canonical", {"layer", "head", "head"}, std::vector<double>(kHeads * kHeads, 0.25));
  file.set_attribute("k", "n_fit", std::int64_t{30000});
  file.set_attribute("k", "noise_floor", std::vector<double>{0.125, 0.25});
}

void write_sample(const Comm& comm, const std::string& path, std::uint32_t* causes) {
  NetcdfFile file = NetcdfFile::create(comm, path);
  file.set_attribute("/", "headspan_schema", std::string("1.0"));
  file.set_attribute("/", "job", std::string("[model]\npath = \"Köpfe\"\n"));
  file.set_attribute("/", "git", std::string());
  file.set_attribute("/", "step", std::int64_t{3000});
  write_stream(file, comm);
  file.define_dimension("tokens/sequence", 4);
  file.write_root("tokens/start", {"sequence"},
                  comm.is_root() ? counted(4, 100) : std::vector<std::int64_t>{});
  file.define_dimension("overlap/projection", std::vector<std::string>{"q", "k", "v"});
  file.define_dimension("overlap/tolerance", std::vector<double>{0.1, 0.01}, {{"units", "1"}});
  file.define_coordinate("overlap/label", "tolerance", std::vector<std::string>{"loose", "tight"});
  file.write_root("overlap/rank", {"projection", "tolerance"}, std::vector<std::int64_t>{1, 2, 3, 4, 5, 6});
  *causes = file.independence_causes();
  file.close();
}

TEST_F(NetcdfTest, OthersReadWhatWasWritten) {
  const std::string path = folder_.path("result.h5");

  std::uint32_t causes = 1;
  write_sample(comm_, path, &causes);
  const int status = comm_.is_root() ? run_python("check_netcdf.py", path) : 0;

  EXPECT_EQ(causes, 0u);
  EXPECT_EQ(status, 0);
}

TEST_F(NetcdfTest, MissingRowsAreRefusedOnAllRanks) {
  NetcdfFile file = NetcdfFile::create(comm_, folder_.path("rows.h5"));
  file.define_dimension("target", 4);
  const double row = 1.0;

  EXPECT_THROW(file.write("r2", {"target"}, &row, 0, comm_.is_root() ? 1 : 0), Error);
}

TEST_F(NetcdfTest, VariablesOfTheRootDimensionMayStandInAGroup) {
  const std::string path = folder_.path("root.h5");

  NetcdfFile file = NetcdfFile::create(comm_, path);
  file.define_dimension("layer", counted(2));
  file.write_root("a/b/depth", {"layer"}, std::vector<double>{1, 2});
  file.close();

  const H5File read = H5File::open(path);
  std::vector<double> depth(2);
  read.open_dataset("a/b/depth").read_rows(0, 2, depth.data());
  EXPECT_EQ(depth, (std::vector<double>{1, 2}));
  EXPECT_TRUE(std::isnan(read.read_attribute<double>("a/b/depth", "_FillValue").value()));
}

}  // namespace
}  // namespace headspan
