#include <gtest/gtest.h>

#include <iostream>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/simulation/cluster_simulation.h"

namespace muster::simulation {
namespace {

constexpr uint64_t kSchedules = 500;

// Returns the story of a seed that went wrong, as `simulate --first-seed SEED --schedules 1
// --story` prints it.
std::string Story(SimulationOptions options) {
  std::string story;
  options.story = &story;
  Simulate(options);
  return story;
}

TEST(SimulatedCluster, HoldsWhateverGoesWrong) {
  SimulationOptions options{.faults = FaultsThatHold()};
  std::map<Fault, uint64_t> happened;
  for (options.seed = 0; options.seed < kSchedules; ++options.seed) {
    const SimulationResult result = Simulate(options);
    for (const auto& [fault, times] : result.happened) happened[fault] += times;
    ASSERT_EQ(result.wrong, "") << "seed " << options.seed << "\n" << Story(options);
  }
  // A fault that did not happen proves nothing.
  for (const Fault fault : options.faults) EXPECT_GT(happened[fault], 0u) << Name(fault);
}

TEST(SimulatedCluster, WhatIsSaidByProcessesThatOutliveTheirLeasesIsRefused) {
  SimulationOptions options{.faults = {Fault::kPartition, Fault::kMusterdKilled},
                            .slow_clocks = true};
  for (options.seed = 0; options.seed < kSchedules / 5; ++options.seed) {
    ASSERT_EQ(Simulate(options).wrong, "") << "seed " << options.seed << "\n" << Story(options);
  }
}

TEST(SimulatedCluster, SameSeedSameStory) {
  const SimulationOptions options{.seed = 7, .faults = AllFaults()};
  EXPECT_EQ(Story(options), Story(options));
}

// Options with which lost processes start on another node as soon as allowed, not only at the next
// second. So only the margins of the leases keep generations from overlapping.
SimulationOptions LeasesAlone() {
  return {
      .faults = {Fault::kPartition, Fault::kOneWayPartition}, .slots = 8, .ticks_per_lease = 200};
}

TEST(SimulatedCluster, MarginsOfLeasesAloneKeepGenerationsApart) {
  SimulationOptions options = LeasesAlone();
  for (options.seed = 0; options.seed < kSchedules; ++options.seed) {
    ASSERT_EQ(Simulate(options).wrong, "") << "seed " << options.seed << "\n" << Story(options);
  }
}

class Planted : public testing::TestWithParam<cluster::PlantedFault> {};

TEST_P(Planted, IsFound) {
  SimulationOptions options{.faults = FaultsThatHold(), .planted_in_cluster = GetParam()};
  // With good clocks processes end before they are stale.
  if (GetParam() == cluster::PlantedFault::kUnfencedCommit) {
    options.faults = {Fault::kPartition, Fault::kMusterdKilled};
    options.slow_clocks = true;
  }
  if (GetParam() == cluster::PlantedFault::kLeaseWithoutMargin) {
    options = LeasesAlone();
    options.planted_in_cluster = GetParam();
  }
  for (options.seed = 0; options.seed < 5000; ++options.seed) {
    const SimulationResult result = Simulate(options);
    if (result.wrong.empty()) continue;
    std::cout << "found after " << options.seed + 1 << " schedules: " << result.wrong << std::endl;
    RecordProperty("schedules_until_it_was_found", static_cast<int>(options.seed + 1));
    return;
  }
  FAIL() << "not found in " << options.seed << " schedules";
}

std::string NameOf(const testing::TestParamInfo<cluster::PlantedFault>& info) {
  constexpr const char* kNames[] = {"None", "LatePersist", "UnfencedCommit", "LostRequestId",
                                    "LeaseWithoutMargin"};
  return kNames[static_cast<int>(info.param)];
}

INSTANTIATE_TEST_SUITE_P(All, Planted,
                         testing::Values(cluster::PlantedFault::kLatePersist,
                                         cluster::PlantedFault::kUnfencedCommit,
                                         cluster::PlantedFault::kLostRequestId,
                                         cluster::PlantedFault::kLeaseWithoutMargin),
                         NameOf);

}  // namespace
}  // namespace muster::simulation
