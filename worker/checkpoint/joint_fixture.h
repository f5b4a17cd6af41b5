// A fixture in which ranks, as threads, write an output together, and checks of the folder after
// failures.
#ifndef MUSTER_WORKER_CHECKPOINT_JOINT_FIXTURE_H_
#define MUSTER_WORKER_CHECKPOINT_JOINT_FIXTURE_H_

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/files/disk.h"
#include "common/files/temp_dir.h"
#include "gtest/gtest.h"
#include "worker/checkpoint/write_together.h"
#include "worker/comm/local/local_group.h"

namespace muster::checkpoint {

// A disk that fails in the call with this number, counted over all ranks and from 1.
class FailingDisk : public files::Disk {
 public:
  explicit FailingDisk(int at) : at_(at) {}
  absl::Status Write(int fd, const void* data, size_t size, const std::string& path) override {
    return Fails() ? absl::ResourceExhaustedError(path + ": full")
                   : Disk::Write(fd, data, size, path);
  }
  absl::Status Sync(int fd, const std::string& path) override {
    return Fails() ? absl::InternalError(path + ": fsync") : Disk::Sync(fd, path);
  }
  absl::Status Rename(const std::string& from, const std::string& to) override {
    return Fails() ? absl::InternalError(to + ": rename") : Disk::Rename(from, to);
  }
  absl::Status Exchange(const std::string& a, const std::string& b) override {
    return Fails() ? absl::InternalError(b + ": exchange") : Disk::Exchange(a, b);
  }
  absl::Status SyncDirectory(const std::string& path) override {
    return Fails() ? absl::InternalError(path + ": fsync") : Disk::SyncDirectory(path);
  }
  int calls() const { return calls_; }

 protected:
  virtual bool Fails() { return ++calls_ == at_; }

 private:
  const int at_;
  std::atomic<int> calls_ = 0;
};

// A disk that ends its process before the `at`th call, as kill -9 does.
class KillingDisk : public FailingDisk {
 public:
  static constexpr int kKilled = 9;
  explicit KillingDisk(int at) : FailingDisk(at) {}

 protected:
  bool Fails() override {
    if (FailingDisk::Fails()) _exit(kKilled);
    return false;
  }
};

class JointTest : public ::testing::Test {
 protected:
  static constexpr int kRanks = 3;
  using Outcomes = std::vector<WriteTogetherOutcome>;

  // Returns the output and the state of a rank. A rank of `elsewhere_` sees another file system:
  // its temporary name is in a folder that does not exist.
  virtual absl::StatusOr<std::unique_ptr<JointOutput>> Output(int rank) = 0;
  virtual State StateOf(int rank) = 0;

  Outcomes Run(files::Disk& disk = files::Disk::Real()) {
    auto group = comm::LocalGroup::Create(kRanks);
    Outcomes outcomes(kRanks);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < kRanks; ++rank) {
      threads.emplace_back([&, rank, communicator = std::move(group[rank])] {
        const auto outcome =
            WriteTogether(Output(rank), StateOf(rank), communicator.get(),
                          {.cancelled = &cancelled_, .still_mine = still_mine_}, disk);
        ASSERT_TRUE(outcome.ok()) << outcome.status();
        outcomes[rank] = *outcome;
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const WriteTogetherOutcome& outcome : outcomes) {
      EXPECT_EQ(outcome.status, outcomes[0].status) << "all ranks know the same";
    }
    return outcomes;
  }
  std::string Error(const Outcomes& outcomes) { return std::string(outcomes[0].status.message()); }
  // Returns a name in a folder that `rank` sees.
  std::string Temporary(int rank, const std::string& name) const {
    return dir_.Path(elsewhere_.contains(rank) ? "elsewhere/" + name : name);
  }
  // Runs in another process, which ends before the `at`th write, sync or rename. Returns false if
  // there were fewer calls, so that the process did everything.
  bool Killed(int at) {
    const pid_t child = fork();
    if (child == 0) {
      KillingDisk disk(at);
      Run(disk);
      _exit(0);
    }
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status)) << status;
    if (WEXITSTATUS(status) != 0) {
      EXPECT_EQ(WEXITSTATUS(status), KillingDisk::kKilled);
    }
    return WEXITSTATUS(status) != 0;
  }
  // True if the folder contains only this name, or nothing.
  bool NothingIsLeftBut(const std::string& path) const {
    for (const auto& entry : std::filesystem::directory_iterator(dir_.path())) {
      if (entry.path() != path) return false;
    }
    return true;
  }

  files::TempDir dir_;
  std::atomic<bool> cancelled_ = false;
  std::function<absl::Status()> still_mine_;
  std::set<int> elsewhere_;
};

}  // namespace muster::checkpoint

#endif  // MUSTER_WORKER_CHECKPOINT_JOINT_FIXTURE_H_
