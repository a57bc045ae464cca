// Locks of runs that are alive, dead, or on other machines.
#include <atomic>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <thread>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "base/input_file.h"
#include "base/process/live_process.h"
#include "base/process/stop_signal.h"
#include "io/outputs/lock_file.h"
#include "support/temp_folder.h"

namespace headspan {
namespace {

namespace fs = std::filesystem;

class LockFileTest : public testing::Test {
 protected:
  /// Returns why the lock cannot be taken; empty if it can.
  std::string refusal() {
    try {
      LockFile::take(path_, "8", silent_, std::chrono::seconds(2));
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  }

  void write_lock(const std::string& process) {
    std::ofstream(lock_) << "job_id 7\nsince 2026-01-01T00:00:00Z\nprocess " << process << "\n";
  }

  TempFolder folder_{"lock_file"};
  std::string path_ = folder_.path("out/model.h5"), lock_ = path_ + ".lock";
  Log silent_{false};
};

const char* const kElsewhere = "n01 4711 99 00000000-0000-0000-0000-000000000000 pid:[1]";

/// Runs `child` in a child process, whose exit code is what it returns.
pid_t start(const std::function<int()>& child) {
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(child());
  return pid;
}

int exit_code_of(pid_t pid) {
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST_F(LockFileTest, IsHeldUntilItsEnd) {
  {
    const auto lock = LockFile::take(path_, "7", silent_);
    const std::string told = refusal();
    EXPECT_EQ(told.rfind(path_ + ": job 7 (process " + std::to_string(::getpid()) + " on ", 0), 0u) << told;
    EXPECT_NE(told.find(") is at work on it; "), std::string::npos) << told;
    EXPECT_NO_THROW(lock->check());
  }
  EXPECT_FALSE(fs::exists(lock_));
  EXPECT_EQ(refusal(), "");
  EXPECT_TRUE(fs::is_empty(folder_.path("out")));
}

TEST_F(LockFileTest, OfAProcessThatIsGoneIsTakenAtOnce) {
  const pid_t child = start([&] {
    static_cast<void>(LockFile::take(path_, "7", silent_).release());  // never released
    return 0;
  });
  ASSERT_EQ(exit_code_of(child), 0);
  ASSERT_TRUE(fs::exists(lock_));

  const auto before = std::chrono::steady_clock::now();
  EXPECT_EQ(refusal(), "");
  EXPECT_LT(std::chrono::steady_clock::now() - before, std::chrono::seconds(1)) << "waited in vain";
}

TEST_F(LockFileTest, OfAProcessThatHasEndedButIsNotLookedAtIsTaken) {
  const pid_t child = start([&] {
    static_cast<void>(LockFile::take(path_, "7", silent_).release());
    return 0;
  });
  siginfo_t ended{};
  ::waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOWAIT);  // now a zombie

  EXPECT_EQ(refusal(), "");
  ::waitpid(child, nullptr, 0);
}

TEST_F(LockFileTest, OfAnotherProcessOfTheSameNumberIsTaken) {
  fs::create_directories(folder_.path("out"));
  std::string process = this_process();
  const auto start = process.find(' ', process.find(' ') + 1) + 1;
  process.replace(start, process.find(' ', start) - start, "1");
  write_lock(process);

  EXPECT_EQ(life_of(process), Life::dead);
  EXPECT_EQ(refusal(), "");
}

TEST_F(LockFileTest, OfAnotherMachineIsTakenWhenItStandsStill) {
  fs::create_directories(folder_.path("out"));
  write_lock(kElsewhere);

  EXPECT_EQ(life_of(kElsewhere), Life::unknown);
  EXPECT_EQ(refusal(), "");
}

TEST_F(LockFileTest, OfARunThatWasKilledBeforeItWroteItIsTakenSoon) {
  fs::create_directories(folder_.path("out"));
  ASSERT_TRUE(std::ofstream(path_ + ".lock").flush());
  const auto start = std::chrono::steady_clock::now();
  EXPECT_NE(LockFile::take(path_, "8", silent_), nullptr);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
}

TEST_F(LockFileTest, OfAnotherMachineStandsWhereItIsRenewed) {
  fs::create_directories(folder_.path("out"));
  write_lock(kElsewhere);
  std::atomic<bool> end{false};
  std::thread holder([&] {
    while (!end) {
      ::utimensat(AT_FDCWD, lock_.c_str(), nullptr, 0);
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  });

  const std::string told = refusal();
  end = true;
  holder.join();

  EXPECT_NE(told.find("job 7 (process 4711 on n01, since 2026-01-01T00:00:00Z) is at work on it"),
            std::string::npos)
      << told;
}

TEST_F(LockFileTest, ThatWasTakenOverIsTold) {
  const auto lock = LockFile::take(path_, "7", silent_);
  write_lock(kElsewhere);

  EXPECT_THROW(lock->check(), Error);
}

TEST_F(LockFileTest, ThatIsNoFileIsRefusedAndNotWaitedFor) {
  fs::create_directories(folder_.path("out"));
  ASSERT_EQ(::mkfifo(lock_.c_str(), 0600), 0);

  EXPECT_THROW(LockFile::take(path_, "8", silent_), InputError);
}

TEST_F(LockFileTest, IsWaitedForNoLongerThanASignal) {
  fs::create_directories(folder_.path("out"));
  write_lock(kElsewhere);

  const auto before = std::chrono::steady_clock::now();
  const pid_t child = start([&] {
    catch_stop_signals();
    ::kill(::getpid(), SIGTERM);
    return LockFile::take(path_, "8", silent_) ? 1 : 0;
  });
  EXPECT_EQ(exit_code_of(child), 0);
  EXPECT_LT(std::chrono::steady_clock::now() - before, std::chrono::seconds(20)) << "waited in vain";
  EXPECT_TRUE(fs::exists(lock_)) << "it may be of a run that lives";
}

/// Each child repeatedly takes the lock, and dies holding it every second time.
TEST_F(LockFileTest, IsNeverHeldByTwo) {
  constexpr int kChildren = 24;
  const std::string inside = folder_.path("inside");
  std::vector<pid_t> children;
  for (int c = 0; c < kChildren; ++c)
    children.push_back(start([&] {
      for (;;) {
        std::unique_ptr<LockFile> lock;
        try {
          lock = LockFile::take(path_, "7", silent_);
        } catch (const Error&) {
          ::usleep(500);
          continue;
        }
        const int alone = ::open(inside.c_str(), O_CREAT | O_EXCL, 0600);
        if (alone < 0) return 1;
        ::usleep(1000);
        ::unlink(inside.c_str());
        if (::getpid() % 2 == 0) static_cast<void>(lock.release());
        return 0;
      }
    }));
  for (const pid_t child : children) EXPECT_EQ(exit_code_of(child), 0);
}

}  // namespace
}  // namespace headspan
