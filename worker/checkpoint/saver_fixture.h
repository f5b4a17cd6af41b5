// A fixture for tests in which ranks, as threads, save and restore together.
#ifndef MUSTER_WORKER_CHECKPOINT_SAVER_FIXTURE_H_
#define MUSTER_WORKER_CHECKPOINT_SAVER_FIXTURE_H_

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"
#include "ATen/ops/arange.h"
#include "ATen/ops/full.h"
#include "ATen/ops/zeros.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/files/disk.h"
#include "common/files/temp_dir.h"
#include "gtest/gtest.h"
#include "worker/checkpoint/directory.h"
#include "worker/checkpoint/saver.h"
#include "worker/checkpoint/state.h"
#include "worker/comm/local/local_group.h"

namespace muster::checkpoint {

inline std::vector<StateTensor> Tensors(float offset) {
  return {{"param", "w", at::arange(100, at::kFloat).add_(offset)},
          {"step", "w", at::full({}, offset, at::kFloat)},
          {"buffer", "n", at::full({}, int64_t{1} << 40, at::kLong).add_(int64_t(offset))}};
}

inline std::vector<StateTensor> Blanks() {
  return {{"param", "w", at::zeros({100}, at::kFloat)},
          {"step", "w", at::zeros({}, at::kFloat)},
          {"buffer", "n", at::zeros({}, at::kLong)}};
}

// Returns rank r's state of N ranks: a parameter, and elements [50 r / N, 50 (r + 1) / N) of its
// moment. Element i of both is `values` + i.
inline State Sliced(int rank, int ranks, float values) {
  StateBuilder builder(ranks);
  builder.AddReplicated("param", "w", at::arange(100, at::kFloat).add_(values));
  std::vector<StateBuilder::Part> parts;
  for (int r = 0; r < ranks; ++r) parts.push_back({r, 50 * r / ranks, 50 * (r + 1) / ranks});
  builder.AddSharded({"exp_avg", "w", {50}}, parts);
  const int64_t begin = parts[rank].begin;
  builder.Hold(begin, at::arange(begin, parts[rank].end, at::kFloat).add_(values));
  return builder.Build();
}

class BrokenDisk : public files::Disk {
 public:
  absl::Status Sync(int, const std::string& path) override {
    return files::ErrnoStatus(EIO, "fsync", path);
  }
};

class SaverTest : public ::testing::TestWithParam<int> {
 protected:
  State MakeState(float offset) { return Replicated(Tensors(offset), GetParam()); }
  State Blank() { return Replicated(Blanks(), GetParam()); }

  // Runs `body` on every rank of a new group.
  void Run(int64_t generation, const std::function<void(int rank, Saver& saver)>& body,
           int broken_rank = -1) {
    const int ranks = GetParam();
    auto group = comm::LocalGroup::Create(ranks);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank) {
      threads.emplace_back([&, rank, communicator = std::move(group[rank])] {
        BrokenDisk broken;
        const std::string directory = static_cast<size_t>(rank) < directories_.size()
                                          ? directories_[rank]
                                          : dir_.Path("ckpt");
        SaverOptions options{.directory = directory,
                             .job = "j",
                             .generation = generation,
                             .strategy = "ddp",
                             .model_kind = "toy"};
        options.node = static_cast<size_t>(rank) < nodes_.size() ? nodes_[rank] : "node";
        options.wait = wait_;
        Saver saver(std::move(options), communicator.get(), rank == broken_rank ? broken : *disk_);
        body(rank, saver);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  std::string SaveStep(int64_t step, int64_t generation) {
    Run(generation, [&](int, Saver& saver) {
      const auto outcome = saver.Save({step, 1, 2, 3}, MakeState(step));
      EXPECT_TRUE(outcome.ok() && outcome->status.ok());
    });
    return dir_.Path("ckpt/" + FinalName(step, generation));
  }

  files::TempDir dir_;
  std::vector<std::string> directories_;  // by rank, when they differ
  std::vector<std::string> nodes_;        // by rank, when they differ
  // The disk of all ranks, which call it from threads of their own.
  files::Disk* disk_ = &files::Disk::Real();
  std::function<void(absl::Duration)> wait_ = [](absl::Duration) {};
};

}  // namespace muster::checkpoint

#endif  // MUSTER_WORKER_CHECKPOINT_SAVER_FIXTURE_H_
