// Sums and joins of tensors over ranks: on the CPU with every number of ranks, on GPUs where there are as
// many.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "dist/comm/gpu.h"
#include "model/core/tensor_comm.h"

namespace headspan {
namespace {

class TensorCommList : public testing::TestWithParam<at::DeviceType> {
 protected:
  void SetUp() override {
    const Comm world = Comm::duplicate(MPI_COMM_WORLD);
    std::optional<int> gpu;
    if (GetParam() == at::kCUDA) {
      const int fewest = world.min(visible_gpus().count);
      if (fewest < world.size())
        GTEST_SKIP() << world.size() << " ranks take as many GPUs; there are " << fewest;
      gpu = world.rank();
      device_ = at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(*gpu));
    }
    comm_ = make_device_comm(world, gpu);
  }

  const DeviceComm& comm() const { return *comm_; }
  int rank() const { return comm_->rank(); }
  int size() const { return comm_->size(); }
  at::TensorOptions of(at::ScalarType type) const { return at::dtype(type).device(device_); }

 private:
  at::Device device_ = at::kCPU;
  std::unique_ptr<DeviceComm> comm_;
};

INSTANTIATE_TEST_SUITE_P(On, TensorCommList, testing::Values(at::kCPU, at::kCUDA),
                         [](const auto& info) { return info.param == at::kCPU ? "cpu" : "gpu"; });

TEST_P(TensorCommList, SumsEveryDtypeInPlace) {
  for (const at::ScalarType type : {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16}) {
    const at::Tensor numbers = at::arange(12, of(type)).view({3, 4});
    at::Tensor values = (numbers * (rank() + 1)).t();  // not contiguous
    const at::Tensor same = values;

    sum_over(comm(), values);

    EXPECT_TRUE(values.is_same(same));
    EXPECT_EQ(values.scalar_type(), type);
    EXPECT_TRUE(at::equal(values, (numbers * (size() * (size() + 1) / 2)).t())) << type;
  }
}

/// 2048 and a 1 of each further rank: in float16 each 1 is rounded off, in float32 the sum is exact and
/// rounds once, to even: 2048, 2048 (of 2049), 2050, 2052 (of 2051), 2052, 2052 (of 2053).
TEST_P(TensorCommList, SumsHalfPrecisionInFloat32) {
  at::Tensor values = at::full({1}, rank() == 0 ? 2048 : 1, of(at::kHalf));
  const double rounded[] = {2048, 2048, 2050, 2052, 2052, 2052};

  sum_over(comm(), values);

  EXPECT_EQ(values.item<double>(), rounded[size() - 1]);
}

/// Of rank + 1 columns of each rank, none of rank 1.
TEST_P(TensorCommList, JoinsColumnsOfUnequalWidth) {
  const auto width = [](int r) { return r == 1 ? 0 : r + 1; };
  const auto columns = [&](int r) {
    return at::arange(100 * r, 100 * r + 3 * width(r), of(at::kFloat)).view({3, width(r)});
  };
  std::vector<at::Tensor> all;
  for (int r = 0; r < size(); ++r) all.push_back(columns(r));

  EXPECT_TRUE(at::equal(join_columns(comm(), columns(rank())), at::cat(all, 1)));
  EXPECT_TRUE(at::equal(join_columns(comm(), columns(rank()).t().contiguous().t()), at::cat(all, 1)));
}

TEST_P(TensorCommList, GathersAndExchanges) {
  const at::Tensor numbers = at::arange(10, of(at::kDouble)).view({5, 2}).t();  // not contiguous
  std::vector<at::Tensor> all, sent, received;
  for (int r = 0; r < size(); ++r) {
    all.push_back(numbers + 100 * r);
    sent.push_back(numbers + 100 * rank() + 10 * r);
    received.push_back(numbers + 100 * r + 10 * rank());
  }

  EXPECT_TRUE(at::equal(gather_all(comm(), numbers + 100 * rank()), at::stack(all)));
  EXPECT_TRUE(at::equal(exchange(comm(), at::stack(sent)), at::stack(received)));
}

/// What lies on the CPU is summed by ranks that compute on GPUs, too.
TEST_P(TensorCommList, SumsWhatLiesElsewhere) {
  at::Tensor values = at::full({3}, rank() + 1, at::kFloat);

  sum_over(comm(), values);

  EXPECT_TRUE(at::equal(values, at::full({3}, size() * (size() + 1) / 2, at::kFloat)));
}

}  // namespace
}  // namespace headspan
