// The same tests for both implementations: over MPI with every number of ranks, over NCCL if there are as
// many GPUs as ranks.
#include <algorithm>
#include <string>

#include <gtest/gtest.h>

#include "base/checked.h"
#include "dist/comm/agreement.h"
#include "dist/comm/device_comm.h"
#include "dist/comm/gpu.h"
#include "support/device_memory.h"

namespace headspan {
namespace {

/// Returns byte i of the message from rank `from` to rank `to`.
char letter(int from, int to, std::int64_t i) { return static_cast<char>(31 * from + 7 * to + i % 101 + 1); }

std::vector<char> letters(int from, int to, std::int64_t count) {
  std::vector<char> values(to_size(count));
  for (std::int64_t i = 0; i < count; ++i) values[to_size(i)] = letter(from, to, i);
  return values;
}

enum class Over { mpi, nccl };

class DeviceCommList : public testing::TestWithParam<Over> {
 protected:
  void SetUp() override {
    const Comm world = Comm::duplicate(MPI_COMM_WORLD);
    std::optional<int> gpu;
    if (GetParam() == Over::nccl) {
      const Gpus gpus = visible_gpus();
      const int fewest = world.min(gpus.count);
      if (fewest < world.size())
        GTEST_SKIP() << "NCCL with " << world.size() << " ranks takes as many GPUs; there are " << fewest
                     << (gpus.why_none.empty() ? "" : ": " + gpus.why_none);
      gpu = world.rank();
    }
    comm_ = make_device_comm(world, gpu);
  }

  const DeviceComm& comm() const { return *comm_; }
  int rank() const { return comm_->rank(); }
  int size() const { return comm_->size(); }

 private:
  std::unique_ptr<DeviceComm> comm_;
};

INSTANTIATE_TEST_SUITE_P(Over, DeviceCommList, testing::Values(Over::mpi, Over::nccl),
                         [](const auto& info) { return info.param == Over::mpi ? "mpi" : "nccl"; });

TEST(Gpu, IsSharedByTheRanksThatNameTheSameLocation) {
  const Comm world = Comm::duplicate(MPI_COMM_WORLD);
  std::vector<int> expected;
  for (int r = world.rank() % 2; r < world.size(); r += 2) expected.push_back(r);

  EXPECT_EQ(ranks_at(world, world.rank() % 2 == 0 ? "node 0000:19:00.0" : "node"), expected);
}

TEST_P(DeviceCommList, HasTheRanksOfTheWorld) {
  const Comm world = Comm::duplicate(MPI_COMM_WORLD);

  EXPECT_EQ(comm().rank(), world.rank());
  EXPECT_EQ(comm().size(), world.size());
  EXPECT_EQ(comm().host().all_gather(world.rank()), world.all_gather(world.rank()));
  EXPECT_EQ(comm().gpu().has_value(), GetParam() == Over::nccl);
}

/// (rank + 1) (i % 17 + 1) over the ranks: size (size + 1) / 2 times the second factor, exact in any order.
template <class T>
void expect_sums(const DeviceComm& comm, std::int64_t count) {
  const int size = comm.size(), ranks = size * (size + 1) / 2;
  std::vector<T> values(to_size(count) + 1, T(-1)), expected = values;  // the last must not change
  for (std::size_t i = 0; i < to_size(count); ++i) {
    values[i] = static_cast<T>(comm.rank() + 1) * static_cast<T>(i % 17 + 1);
    expected[i] = static_cast<T>(ranks) * static_cast<T>(i % 17 + 1);
  }
  DeviceArray<T> array(comm, values);

  comm.sum(array.data(), count);

  EXPECT_EQ(array.values(), expected) << count << " of " << sizeof(T) << " bytes";
}

TEST_P(DeviceCommList, SumsInPlace) {
  for (const std::int64_t count : {0, 1, 1000, 300007}) {
    expect_sums<double>(comm(), count);
    expect_sums<float>(comm(), count);
  }
}

TEST_P(DeviceCommList, SumsHaveTheSameBitsEverywhere) {
  std::vector<double> values(10007);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = 1.0 / (1.0 + static_cast<double>(i) + rank());
  DeviceArray<double> array(comm(), values);

  comm().sum(array.data(), 10007);

  const std::vector<double> sums = array.values();
  double harmonic = 0;
  for (int r = 1; r <= size(); ++r) harmonic += 1.0 / r;
  EXPECT_NEAR(sums[0], harmonic, 1e-14);
  for (const auto& other : comm().host().exchange(std::vector<std::vector<double>>(to_size(size()), sums)))
    EXPECT_EQ(other, sums);
}

TEST_P(DeviceCommList, BroadcastsFromEveryRank) {
  for (const std::int64_t bytes : {0, 1, 13, 1000003})
    for (int root = 0; root < size(); ++root) {
      DeviceArray<char> array(comm(), letters(rank(), rank(), bytes + 1));

      comm().broadcast(array.data(), bytes, root);

      std::vector<char> expected = letters(root, root, bytes);
      expected.push_back(letter(rank(), rank(), bytes));  // the last must not change
      EXPECT_EQ(array.values(), expected) << bytes << " bytes from " << root;
    }
}

TEST_P(DeviceCommList, GathersInTheOrderOfRanks) {
  for (const std::int64_t bytes : {0, 1, 13, 100003}) {
    DeviceArray<char> sent(comm(), letters(rank(), 0, bytes)),
        all(comm(), std::vector<char>(to_size(size() * bytes + 1), 'e'));

    comm().all_gather(sent.data(), bytes, all.data());

    std::vector<char> expected;
    for (int r = 0; r < size(); ++r)
      for (const char value : letters(r, 0, bytes)) expected.push_back(value);
    expected.push_back('e');
    EXPECT_EQ(all.values(), expected) << bytes << " bytes";
  }
}

TEST_P(DeviceCommList, ExchangesEqualParts) {
  for (const std::int64_t bytes : {0, 1, 13, 100003}) {
    std::vector<char> send, expected;
    for (int r = 0; r < size(); ++r) {
      for (const char value : letters(rank(), r, bytes)) send.push_back(value);
      for (const char value : letters(r, rank(), bytes)) expected.push_back(value);
    }
    expected.push_back('e');
    DeviceArray<char> sent(comm(), send), received(comm(), std::vector<char>(expected.size(), 'e'));

    comm().exchange(sent.data(), bytes, received.data());

    EXPECT_EQ(received.values(), expected) << bytes << " bytes";
    EXPECT_EQ(sent.values(), send);
  }
}

/// Messages whose lengths differ from pair to pair and by direction; some are empty. The send buffer has them
/// in order of ranks, the receive buffer in the opposite order, two bytes apart.
TEST_P(DeviceCommList, ExchangesUnequalAndEmptyParts) {
  const auto length = [](int from, int to) { return std::int64_t{1009} * ((from * 7 + to * 4) % 5); };
  std::vector<char> send, expected;
  for (int r = 0; r < size(); ++r)
    for (const char value : letters(rank(), r, length(rank(), r))) send.push_back(value);
  for (int r = size() - 1; r >= 0; --r) {
    for (const char value : letters(r, rank(), length(r, rank()))) expected.push_back(value);
    expected.insert(expected.end(), 2, 'e');
  }
  DeviceArray<char> sent(comm(), send), received(comm(), std::vector<char>(expected.size(), 'e'));
  std::vector<Bytes<const char>> from;
  std::vector<Bytes<char>> to(to_size(size()));
  const char* next = sent.data();
  char* out = received.data();
  for (int r = 0; r < size(); ++r) {
    from.push_back({next, length(rank(), r)});
    next += from.back().count;
  }
  for (int r = size() - 1; r >= 0; --r) {
    to[to_size(r)] = {out, length(r, rank())};
    out += to[to_size(r)].count + 2;
  }

  comm().exchange(from, to);

  EXPECT_EQ(received.values(), expected);
}

TEST_P(DeviceCommList, ExchangesNothingAtAll) {
  const std::vector<Bytes<const char>> from(to_size(size()), {nullptr, 0});
  const std::vector<Bytes<char>> to(to_size(size()), {nullptr, 0});

  comm().exchange(from, to);
  comm().broadcast(nullptr, 0, size() - 1);
  comm().sum(static_cast<double*>(nullptr), 0);
  expect_sums<double>(comm(), 3);  // and still works
}

/// More calls than may be under way at once, each on the result of the previous one.
TEST_P(DeviceCommList, CallsFollowEachOther) {
  DeviceArray<double> array(comm(), {1, 2, 3});
  double power = 1;

  for (int i = 0; i < 20; ++i) {
    comm().sum(array.data(), 3);
    comm().broadcast(array.data(), 3 * sizeof(double), i % size());
    power *= size();
  }

  EXPECT_EQ(array.values(), (std::vector<double>{power, 2 * power, 3 * power}));  // exact: at most 2^20 3^21
}

/// Several calls under way at once, waited for in an order other than that of their beginnings.
TEST_P(DeviceCommList, DefaultStreamRunsBesideACallThatHasBegun) {
  std::vector<char> send, expected;
  std::vector<Bytes<const char>> from;
  std::vector<Bytes<char>> to;
  for (int r = 0; r < size(); ++r) {
    for (const char value : letters(rank(), r, 1009)) send.push_back(value);
    for (const char value : letters(r, rank(), 1009)) expected.push_back(value);
  }
  DeviceArray<char> sent(comm(), send), received(comm(), std::vector<char>(expected.size(), 'e'));
  for (int r = 0; r < size(); ++r) {
    from.push_back({sent.data() + r * 1009, 1009});
    to.push_back({received.data() + r * 1009, 1009});
  }
  DeviceArray<double> first(comm(), {1, 2}), late(comm(), {-1, -1}), other(comm(), {-1, -1});
  DeviceArray<float> second(comm(), {3});

  const auto sum = comm().begin_sum(first.data(), 2);
  const auto exchanged = comm().begin_exchange(from, to);
  other.write_late({5, 6});  // ordered after neither call
  const auto small = comm().begin_sum(second.data(), 1);
  const auto nothing = comm().begin_sum(first.data(), 0);
  comm().wait(small);
  comm().wait(nothing);
  late.write_late({1.0 + rank(), 10});
  const auto last_call = comm().begin_sum(late.data(), 2);
  comm().wait(exchanged);
  comm().wait(sum);
  comm().wait(last_call);

  const double n = size();
  EXPECT_EQ(first.values(), (std::vector<double>{n, 2 * n}));
  EXPECT_EQ(second.values(), (std::vector<float>{3 * static_cast<float>(size())}));
  EXPECT_EQ(received.values(), expected);
  EXPECT_EQ(other.values(), (std::vector<double>{5, 6}));
  EXPECT_EQ(late.values(), (std::vector<double>{n * (n + 1) / 2, 10 * n}));
}

TEST_P(DeviceCommList, RunsAfterWhatIsOnTheDefaultStream) {
  DeviceArray<double> array(comm(), {-1, -1});
  array.write_late({1.0 + rank(), 10});

  comm().sum(array.data(), 2);

  EXPECT_EQ(array.values(), (std::vector<double>{size() * (size() + 1) / 2.0, 10.0 * size()}));
}

TEST_P(DeviceCommList, GroupsOfRanksWorkSideBySide) {
  const Comm part = comm().host().split(rank() % 2, -rank());
  const auto other = make_device_comm(part, comm().gpu());
  DeviceArray<double> array(*other, {rank() + 1.0}), all(comm(), {rank() + 1.0});

  other->sum(array.data(), 1);
  comm().sum(all.data(), 1);

  double expected = 0;
  for (int r = rank() % 2; r < size(); r += 2) expected += r + 1;
  EXPECT_EQ(array.values(), std::vector<double>{expected});
  EXPECT_EQ(all.values(), std::vector<double>{size() * (size() + 1) / 2.0});
}

/// Two ranks on one GPU, or no GPU at all: all ranks get the same error.
TEST(DeviceComm, RefusesAGpuThatCannotBeUsed) {
  const Comm world = Comm::duplicate(MPI_COMM_WORLD);
  const bool any = world.min(visible_gpus().count) > 0;
  if (any && world.size() == 1) GTEST_SKIP() << "one rank may use the GPU that is here";
  std::string what;

  try {
    make_device_comm(world, 0);
  } catch (const AgreedError& error) {
    EXPECT_EQ(error.exit_code(), 1);
    what = error.what();
  }

  EXPECT_NE(what.find(any ? "ranks 0 and 1 would share GPU" : "GPU"), std::string::npos) << what;
  EXPECT_EQ(world.broadcast(what, 0), what);
}

}  // namespace
}  // namespace headspan
