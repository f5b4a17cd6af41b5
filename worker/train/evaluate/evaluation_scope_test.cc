#include "worker/train/evaluate/evaluation_scope.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "worker/comm/flight/flight_recorder.h"
#include "worker/comm/flight/recorded_communicator.h"
#include "worker/train/ranks/rank_threads.h"
#include "worker/train/training/join_fixture.h"
#include "worker/train/training/rank_steps.h"

namespace muster::train {
namespace {

class Notices : public EventSink {
 public:
  void Report(const Event& event) override {
    const std::lock_guard lock(mutex_);
    if (const auto* notice = std::get_if<Notice>(&event)) all_.push_back(*notice);
  }
  void Progress(int64_t, const char*, const char*) override {}
  std::vector<Notice> all() const {
    const std::lock_guard lock(mutex_);
    return all_;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<Notice> all_;
};

// Returns the state that this rank holds: the bytes of each item.
std::map<std::string, std::string> BytesOf(const checkpoint::State& state) {
  std::map<std::string, std::string> bytes;
  for (const auto& piece : state.held) {
    bytes[absl::StrCat(Name(state.items[piece.item]), "@", piece.begin)] =
        std::string(static_cast<const char*>(piece.tensor.const_data_ptr()), piece.tensor.nbytes());
  }
  return bytes;
}

using EvaluationScopeTest = JoinFixture;
INSTANTIATE_TEST_SUITE_P(Strategies, EvaluationScopeTest, testing::Values(0, 1, 2), NameOfStrategy);

struct Passes {
  EvaluationReshard reshard = EvaluationReshard::kAuto;
  std::vector<uint64_t> available = {};  // by rank
  int count = 2;
};

struct Counted {
  // The number of collectives for parameters on rank 0, for each Begin.
  std::vector<uint64_t> gathers;
  std::vector<Notice> notices;
};

// Begins and ends scopes on three ranks after a step.
Counted CountIn(Job job, const Passes& passes) {
  Counted counted;
  Notices notices;
  job.evaluation.reshard = passes.reshard;
  RunRanks(3, [&](int rank, comm::Communicator& control, comm::Communicator& data,
                  comm::Communicator& parameters) {
    comm::FlightRecorder flight;
    const auto recorded = comm::Recorded(&parameters, &flight, 2);
    RankSteps steps(job, rank, control, data, *recorded);
    ASSERT_TRUE(steps.Next().ok());
    SessionState state;
    const SessionReports reports(rank, &notices, &state);
    const Background background(&control, &reports);
    EvaluationPasses::Dependencies deps{.job = &job,
                                        .device = c10::kCPU,
                                        .control = &control,
                                        .background = &background,
                                        .reports = &reports,
                                        .session_state = &state};
    if (!passes.available.empty()) {
      deps.available = [bytes = passes.available[rank]] { return bytes; };
    }
    EvaluationPasses evaluation(deps);
    for (int i = 0; i < passes.count; ++i) {
      const uint64_t before = flight.digest().begun;
      auto scope = evaluation.Begin(&steps.training());
      ASSERT_TRUE(scope.ok()) << scope.status();
      if (rank == 0) counted.gathers.push_back(flight.digest().begun - before);
      const absl::Status ended = (*scope)->End();
      ASSERT_TRUE(ended.ok()) << ended;
    }
  });
  counted.notices = notices.all();
  return counted;
}

TEST_P(EvaluationScopeTest, AllRanksGatherOnceIfEachHasTheMemory) {
  const Job job = JobOn({40, 40, 40}, 8);
  const bool fsdp = GetParam() == 2;
  constexpr uint64_t kMuch = 1 << 30;
  const Counted much = CountIn(job, {.available = {kMuch, kMuch, kMuch}});
  EXPECT_EQ(much.gathers[0] > 0, fsdp);
  EXPECT_EQ(much.gathers[1], much.gathers[0]) << "freed at the end";
  EXPECT_TRUE(much.notices.empty());
  // One rank has too little memory: no rank gathers, and rank 0 reports this once.
  const Counted little = CountIn(job, {.available = {kMuch, 10, kMuch}});
  EXPECT_EQ(little.gathers, (std::vector<uint64_t>{0, 0}));
  ASSERT_EQ(little.notices.size(), fsdp ? 1u : 0u);
  if (!fsdp) return;
  EXPECT_EQ(little.notices[0].reason, "EVALUATION_RESHARDS");
  EXPECT_NE(little.notices[0].message.find("1 of 3 ranks"), std::string::npos)
      << little.notices[0].message;
}

TEST_P(EvaluationScopeTest, NeverAndAlwaysDoNotAskForTheMemory) {
  const Job job = JobOn({40, 40, 40}, 8);
  const bool fsdp = GetParam() == 2;
  const Counted never =
      CountIn(job, {.reshard = EvaluationReshard::kNever, .available = {0, 0, 0}});
  EXPECT_EQ(never.gathers[0] > 0, fsdp);
  EXPECT_TRUE(never.notices.empty());
  const Counted always =
      CountIn(job, {.reshard = EvaluationReshard::kAlways, .available = {9, 9, 9}});
  EXPECT_EQ(always.gathers, (std::vector<uint64_t>{0, 0}));
  EXPECT_TRUE(always.notices.empty());
}

// The same holds for a scope without End, if the rank needs no other rank.
TEST_P(EvaluationScopeTest, AfterItEverythingIsAsItWas) {
  Job job = JobOn({40, 40, 40}, 8);
  job.evaluation.averages = AverageConfig{.decay = 0.5, .evaluate = true};
  for (const bool ends : {true, false}) {
    if (!ends && GetParam() != 0) continue;
    RunRanks(3, [&](int rank, comm::Communicator& control, comm::Communicator& data,
                    comm::Communicator& parameters) {
      RankSteps steps(job, rank, control, data, parameters);
      Notices notices;
      SessionState state;
      const SessionReports reports(rank, &notices, &state);
      const Background background(&control, &reports);
      EvaluationPasses evaluation({.job = &job,
                                   .device = c10::kCPU,
                                   .control = &control,
                                   .background = &background,
                                   .reports = &reports,
                                   .session_state = &state});
      for (int64_t step = 1; step <= 3; ++step) {
        ASSERT_TRUE(steps.Next().ok());
        steps.training().UpdateAverages(step);
      }
      ASSERT_TRUE(steps.training().strategy().AwaitParameters().ok());
      const auto before = BytesOf(steps.training().State());
      {
        const auto scope = evaluation.Begin(&steps.training());
        ASSERT_TRUE(scope.ok()) << scope.status();
        auto within = BytesOf(steps.training().State());
        EXPECT_NE(within, before);
        if (ends) {
          const absl::Status ended = (*scope)->End();
          ASSERT_TRUE(ended.ok()) << ended;
        }
      }
      EXPECT_EQ(BytesOf(steps.training().State()), before);
      ASSERT_TRUE(steps.Next().ok());
    });
  }
}

}  // namespace
}  // namespace muster::train
