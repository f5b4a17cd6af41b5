#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <barrier>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ATen/ops/ones.h"
#include "gtest/gtest.h"
#include "worker/comm/gloo/gloo_communicator.h"

extern char** environ;

namespace muster::comm {
namespace {

class KilledPeer : public testing::TestWithParam<int> {};

// The buffers are large, so that survivors are still sending when they find the peer dead.
TEST_P(KilledPeer, FailsEverySurvivorNamingRankOperationAndStep) {
  const int world_size = GetParam();
  const int victim = world_size - 1;
  auto store = HostStore();
  ASSERT_TRUE(store.ok()) << store.status();

  const std::string program = "worker/comm/gloo/killed_rank";
  std::vector<std::string> arguments{program, std::to_string((*store)->port()),
                                     std::to_string(victim), std::to_string(world_size)};
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  int order[2];  // a byte in this pipe orders the victim to die
  ASSERT_EQ(pipe(order), 0);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, order[0], 0);
  pid_t pid = 0;
  ASSERT_EQ(posix_spawn(&pid, program.c_str(), &actions, nullptr, argv.data(), environ), 0);
  posix_spawn_file_actions_destroy(&actions);

  std::barrier warm(victim);

  std::vector<std::thread> survivors;
  for (int rank = 0; rank < victim; ++rank) {
    survivors.emplace_back([&, rank] {
      auto own = ConnectStore("127.0.0.1", (*store)->port(), std::chrono::seconds(20));
      ASSERT_TRUE(own.ok()) << own.status();
      auto ranks =
          CreateGlooCommunicator({.rank = rank, .world_size = world_size, .name = "test"}, **own);
      ASSERT_TRUE(ranks.ok()) << ranks.status();
      for (int step = 0; step < 2; ++step) {
        const absl::Status warm_up =
            (*ranks)->AllReduceSum(at::ones({1000}), {"warm-up", step})->Wait();
        EXPECT_TRUE(warm_up.ok()) << warm_up;
      }
      warm.arrive_and_wait();
      if (rank == 0) EXPECT_EQ(write(order[1], "x", 1), 1);
      auto first = (*ranks)->AllReduceSum(at::ones({4 << 20}), {"bucket 0", 17});
      auto second = (*ranks)->ReduceScatterSum(at::ones({1 << 20}), at::ones({world_size << 20}),
                                               {"bucket 1", 17});
      const std::vector<int64_t> sizes(world_size, 1 << 20);
      auto third = (*ranks)->AllToAll(at::ones({world_size << 20}), sizes,
                                      at::ones({world_size << 20}), sizes, {"pieces", 17});
      const std::pair<Work*, std::string> expected[] = {{first.get(), "all_reduce 'bucket 0'"},
                                                        {second.get(), "reduce_scatter 'bucket 1'"},
                                                        {third.get(), "all_to_all 'pieces'"}};
      for (const auto& [work, operation] : expected) {
        const absl::Status status = work->Wait();
        EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
        const std::string start = "rank " + std::to_string(rank) + ": " + operation +
                                  " at step 17: rank " + std::to_string(victim) + " is gone: ";
        EXPECT_EQ(std::string(status.message()).rfind(start, 0), 0) << status;
      }
      // A communicator that has failed cannot be used again: every operation fails at once with the
      // same root cause.
      const absl::Status later =
          (*ranks)->AllGather(at::ones({world_size}), at::ones({1}), {"later", 18})->Wait();
      EXPECT_NE(
          std::string(later.message())
              .find("all_gather 'later' at step 18: rank " + std::to_string(victim) + " is gone"),
          std::string::npos)
          << later;
    });
  }
  for (std::thread& survivor : survivors) survivor.join();
  close(order[0]);
  close(order[1]);
  int status = 0;
  ASSERT_EQ(waitpid(pid, &status, 0), pid);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
}

INSTANTIATE_TEST_SUITE_P(WorldSizes, KilledPeer, testing::Values(2, 3, 4));

}  // namespace
}  // namespace muster::comm
