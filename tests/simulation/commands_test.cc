// Tests of commands under faults. Schedules are seeded; a schedule that fails prints its number.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "tests/simulation/commands_simulation.h"

namespace muster::simulation {
namespace {

constexpr uint32_t kSchedules = 10000;

TEST(CommandSimulation, EachCommandTakesEffectOnceAtOneStepOnAllRanks) {
  for (uint32_t seed = 0; seed < kSchedules; ++seed) {
    const std::string wrong = CommandsSimulation(seed, Bug::kNone).Run();
    if (wrong.empty()) continue;
    std::string story;
    CommandsSimulation(seed, Bug::kNone, &story).Run();
    FAIL() << "schedule " << seed << ": " << wrong << "\n" << story;
  }
}

class PlantedBug : public testing::TestWithParam<Bug> {};

TEST_P(PlantedBug, IsFound) {
  uint32_t found = 0;
  for (uint32_t seed = 0; seed < 1000; ++seed) {
    found += !CommandsSimulation(seed, GetParam()).Run().empty();
  }
  EXPECT_GT(found, 0);
  RecordProperty("schedules_that_found_it_of_1000", static_cast<int>(found));
}

std::string NameOf(const testing::TestParamInfo<Bug>& info) {
  constexpr const char* kNames[] = {"None", "LatePersist", "MinOfSome", "LostRequestIds"};
  return kNames[static_cast<int>(info.param)];
}

INSTANTIATE_TEST_SUITE_P(All, PlantedBug,
                         testing::Values(Bug::kLatePersist, Bug::kMinOfSome, Bug::kLostRequestIds),
                         NameOf);

}  // namespace
}  // namespace muster::simulation
