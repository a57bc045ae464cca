#include <new>
#include <numeric>
#include <string>

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "dist/comm/agreement.h"
#include "dist/comm/mpi.h"
#include "dist/matrix/zero_pages.h"

namespace headspan {
namespace {

TEST(Comm, ReducesOnAllRanks) {
  const Comm world = Comm::duplicate(MPI_COMM_WORLD);
  const int rank = world.rank(), size = world.size();
  std::vector<std::int64_t> values{1, rank, std::int64_t{1} << 40};

  world.sum(values.data(), 3);

  EXPECT_EQ(values, (std::vector<std::int64_t>{size, size * (size - 1) / 2, size * (std::int64_t{1} << 40)}));
  EXPECT_EQ(world.max(rank), size - 1);
  EXPECT_EQ(world.min(rank + 0.5), 0.5);
}

TEST(Comm, SumsHaveTheSameBitsEverywhere) {
  const Comm world = Comm::duplicate(MPI_COMM_WORLD);
  std::vector<double> values(1001);
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = 1.0 / (1.0 + static_cast<double>(i) + world.rank());

  world.sum(values.data(), 1001);

  for (const auto& other :
       world.exchange(std::vector<std::vector<double>>(static_cast<std::size_t>(world.size()), values)))
    EXPECT_EQ(other, values);
}

TEST(Comm, BroadcastsAndGathers) {
  const Comm world = Comm::duplicate(MPI_COMM_WORLD);
  const int last = world.size() - 1;
  std::vector<std::int64_t> ranks(static_cast<std::size_t>(world.size()));
  std::iota(ranks.begin(), ranks.end(), 0);

  EXPECT_EQ(world.broadcast(std::string(static_cast<std::size_t>(world.rank()), 'x') + "y", last),
            std::string(static_cast<std::size_t>(last), 'x') + "y");
  EXPECT_EQ(world.broadcast(std::string(world.is_root() ? "" : "filled"), 0), "");
  EXPECT_EQ(world.all_gather<std::int64_t>(world.rank()), ranks);
}

TEST(Comm, ExchangesUnequalAndEmptyMessages) {
  const Comm world = Comm::duplicate(MPI_COMM_WORLD);
  const auto length = [](int from, int to) { return (from * 7 + to * 3) % 5; };  // 0 for some pairs
  std::vector<std::vector<int>> send;
  for (int to = 0; to < world.size(); ++to)
    send.emplace_back(static_cast<std::size_t>(length(world.rank(), to)), 100 * world.rank() + to);

  const auto received = world.exchange(send);

  ASSERT_EQ(received.size(), send.size());
  for (int from = 0; from < world.size(); ++from)
    EXPECT_EQ(
        received[static_cast<std::size_t>(from)],
        std::vector<int>(static_cast<std::size_t>(length(from, world.rank())), 100 * from + world.rank()));
}

TEST(Comm, GathersUnevenAndEmptyListsOnTheRoot) {
  const Comm world = Comm::duplicate(MPI_COMM_WORLD);
  std::vector<std::vector<int>> expected(static_cast<std::size_t>(world.size()));
  for (int r = 0; r < world.size() && world.is_root(); ++r)
    expected[static_cast<std::size_t>(r)].assign(static_cast<std::size_t>(r % 3), 10 + r);

  EXPECT_EQ(world.gather(std::vector<int>(static_cast<std::size_t>(world.rank() % 3), 10 + world.rank())),
            expected);
}

TEST(Comm, ExchangesNothingAtAll) {
  const Comm world = Comm::duplicate(MPI_COMM_WORLD);
  const std::vector<std::vector<double>> nothing(static_cast<std::size_t>(world.size()));

  EXPECT_EQ(world.exchange(nothing), nothing);
}

TEST(Comm, ExchangesAndGathersEqualCounts) {
  const Comm world = Comm::duplicate(MPI_COMM_WORLD);
  const auto size = static_cast<std::size_t>(world.size());
  std::vector<int> send(3 * size), received(3 * size), expected, gathered(3 * size), all;
  for (std::size_t i = 0; i < send.size(); ++i) send[i] = 1000 * world.rank() + static_cast<int>(i);
  for (int r = 0; r < world.size(); ++r)
    for (int i = 0; i < 3; ++i) {
      expected.push_back(1000 * r + 3 * world.rank() + i);
      all.push_back(1000 * r + i);
    }

  world.exchange(send.data(), 3, received.data());
  world.all_gather(send.data(), 3, gathered.data());

  EXPECT_EQ(received, expected);
  EXPECT_EQ(gathered, all);
}

/// More bytes than 32 bits can count: zeros, all of them the same 16 MiB of memory, and a last MiB of other
/// memory.
class LongArray {
 public:
  LongArray() : pages_(kHead + kTail) {
    const int file = memfd_create("zeros", 0);
    if (file < 0 || ftruncate(file, kPiece) != 0) throw_errno("cannot make", "shared memory");
    for (std::int64_t at = 0; at < kHead; at += kPiece)
      if (mmap(data() + at, kPiece, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) == MAP_FAILED)
        throw_errno("cannot map", "shared memory");
    close(file);
  }
  char* data() { return static_cast<char*>(pages_.data()); }
  std::int64_t size() const { return kHead + kTail; }
  void fill_tail(int number) {
    for (std::int64_t i = 0; i < kTail; ++i) data()[kHead + i] = letter(i, number);
  }
  bool tail_is(int number) {
    for (std::int64_t i = 0; i < kTail; ++i)
      if (data()[kHead + i] != letter(i, number)) return false;
    return true;
  }

 private:
  static char letter(std::int64_t i, int number) { return static_cast<char>((i / 7 + number) % 101); }

  static constexpr std::int64_t kHead = std::int64_t{1} << 31, kTail = std::int64_t{1} << 20,
                                kPiece = std::int64_t{1} << 24;
  ZeroPages pages_;
};

TEST(Comm, CarriesMoreThanOneMessageCan) {
  const Comm world = Comm::duplicate(MPI_COMM_WORLD);
  if (world.size() != 2) GTEST_SKIP() << "on two ranks";
  const auto peer = static_cast<std::size_t>(1 - world.rank());
  LongArray ours, theirs;
  ours.fill_tail(world.rank());
  std::vector<Bytes<const char>> send(2, {nullptr, 0});
  std::vector<Bytes<char>> receive(2, {nullptr, 0});
  send[peer] = {ours.data(), ours.size()};
  receive[peer] = {theirs.data(), theirs.size()};

  world.exchange(send, receive);
  world.broadcast(ours.data(), ours.size(), 1);

  EXPECT_TRUE(theirs.tail_is(1 - world.rank()));
  EXPECT_TRUE(ours.tail_is(1));
}

TEST(Comm, SplitsByColourInTheOrderOfKeys) {
  const Comm world = Comm::duplicate(MPI_COMM_WORLD);

  const Comm part = world.split(world.rank() % 2, -world.rank());

  int members = 0, later = 0;
  for (int r = world.rank() % 2; r < world.size(); r += 2) {
    ++members;
    later += r > world.rank() ? 1 : 0;
  }
  EXPECT_EQ(part.size(), members);
  EXPECT_EQ(part.rank(), later);
  EXPECT_EQ(world.split_shared().size(), world.size());  // the tests run on one node
}

TEST(Comm, TurnsMpiErrorsIntoError) {
  const Comm world = Comm::duplicate(MPI_COMM_WORLD);
  double value = 0;

  try {
    HS_MPI(MPI_Send(&value, 1, MPI_DOUBLE, world.size(), 0, world.get()));
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    const std::string what = error.what();
    EXPECT_EQ(what.rfind("MPI: ", 0), 0U) << what;
    EXPECT_NE(what.find("test_mpi.cpp"), std::string::npos) << what;
  }
}

/// Runs `step` through agree on all ranks; returns the code and text of the error, or "".
template <class Step>
std::string outcome(const Comm& comm, const Step& step) {
  try {
    agree(comm, step);
  } catch (const AgreedError& error) {
    return std::to_string(error.exit_code()) + " " + error.what();
  }
  return {};
}

TEST(Agreement, IsSilentWhereAllSucceed) {
  const Comm world = Comm::duplicate(MPI_COMM_WORLD);
  int runs = 0;

  EXPECT_EQ(outcome(world, [&] { ++runs; }), "");
  EXPECT_EQ(runs, 1);
}

TEST(Agreement, CarriesTheErrorOfOneRankToAll) {
  const Comm world = Comm::duplicate(MPI_COMM_WORLD);
  const int last = world.size() - 1;
  const auto only_last = [&](const auto& raise) {
    return outcome(world, [&] {
      if (world.rank() == last) raise();
    });
  };

  EXPECT_EQ(only_last([] { throw InputError("a.h5", "dtype", "F8", "is not known", "use F32"); }),
            "2 a.h5: dtype = F8: is not known; use F32");
  EXPECT_EQ(only_last([] { throw Error("write: a.h5: No space left on device"); }),
            "1 rank " + std::to_string(last) + ": write: a.h5: No space left on device");
  EXPECT_EQ(only_last([] { throw std::bad_alloc(); }), "1 rank " + std::to_string(last) + ": out of memory");
  EXPECT_EQ(only_last([] { throw Error("H5Fopen: a\n.h5: cannot be opened"); }),
            "1 rank " + std::to_string(last) + ": H5Fopen: a\\x0A.h5: cannot be opened");
  EXPECT_EQ(only_last([] { throw std::out_of_range("beyond\nframe #0: of another library"); }),
            "1 rank " + std::to_string(last) + ": beyond");
  EXPECT_EQ(only_last([] { throw AgreedError("agreed in a smaller group", 2); }),
            "2 agreed in a smaller group");
}

TEST(Agreement, ReportsTheErrorOfTheLowestRank) {
  const Comm world = Comm::duplicate(MPI_COMM_WORLD);
  const int first = world.size() > 2 ? 1 : 0;

  const std::string told = outcome(world, [&] {
    if (world.rank() == first) throw InputError("rank one", "", "", "is wrong");
    if (world.rank() > first) throw Error("a longer text of a later rank");
  });

  EXPECT_EQ(told, "2 rank one: is wrong");
}

}  // namespace
}  // namespace headspan
