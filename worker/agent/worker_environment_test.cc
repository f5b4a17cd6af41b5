#include "worker/agent/worker_command.h"

#include <gtest/gtest.h>

namespace muster::agent {
namespace {

TEST(WorkerEnvironment, WhatAWorkerReadsIsPassedAndNothingElse) {
  for (const char* name : {"PATH", "HOME", "LC_ALL", "LD_LIBRARY_PATH", "CUDA_HOME", "NCCL_DEBUG",
                           "GLOO_SOCKET_IFNAME", "OMP_NUM_THREADS", "TSAN_OPTIONS"}) {
    EXPECT_TRUE(IsForWorkers(name, {})) << name;
  }
  for (const char* name : {"AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN", "LD_PRELOAD", "MUSTER_ADDRESS",
                           "MUSTER_PLUGINS", "PATHS", "XCUDA_A", "", "HOM"}) {
    EXPECT_FALSE(IsForWorkers(name, {})) << name;
  }
}

TEST(WorkerEnvironment, MoreIsPassedByNameOrByItsBeginning) {
  EXPECT_TRUE(IsForWorkers("A", {"A", "B_*"}));
  EXPECT_TRUE(IsForWorkers("B_C", {"A", "B_*"}));
  EXPECT_FALSE(IsForWorkers("AB", {"A", "B_*"}));
  EXPECT_TRUE(CheckVariableNames({"A", "B_*", "c9"}).ok());
  for (const char* wrong : {"", "*", "A=1", "A B", "A**"}) {
    EXPECT_EQ(CheckVariableNames({wrong}).code(), absl::StatusCode::kInvalidArgument) << wrong;
  }
}

}  // namespace
}  // namespace muster::agent
