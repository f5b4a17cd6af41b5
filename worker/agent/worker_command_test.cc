#include "worker/agent/worker_command.h"

#include <gtest/gtest.h>

#include "common/process/process.h"
#include "common/version/version.h"

namespace muster::agent {
namespace {

TEST(WorkerCommand, TellsTheWorkerTheVersionOfTheAgent) {
  const process::SpawnOptions options = ToSpawnOptions({.binary = "/bin/muster-worker"});
  EXPECT_EQ(options.environment.at(kAgentVersionVariable), Version());
}

}  // namespace
}  // namespace muster::agent
