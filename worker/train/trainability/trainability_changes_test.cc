#include "worker/train/trainability/trainability_changes.h"

#include <ATen/core/Tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "worker/comm/flight/recorded_communicator.h"
#include "worker/models/spec_from_json.h"
#include "worker/train/ranks/rank_threads.h"

namespace muster::train {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class InMemoryCoordinator : public CommandSource, public EventSink {
 public:
  int64_t Newest() const override { return 0; }
  Command Get(int64_t) const override { return {}; }
  void Report(const Event& event) override {
    if (const auto* told = std::get_if<TrainabilityReport>(&event)) told_.push_back(*told);
  }
  void Progress(int64_t, const char*, const char*) override {}
  std::vector<TrainabilityReport> told_;
};

// The only rank of a job whose model comes from plugin_faults.so.
struct Rank {
  Rank(const std::string& fault, RefreshMode refresh, comm::Communicator& control,
       comm::Communicator& data)
      : recorded(comm::Recorded(&data, &flight, 1)), reports(0, &coordinator, &session_state) {
    job.strategy = parallel::FsdpOptions();
    model = *models::CreateFromJson("plugin",
                                    {{"path", "worker/models/plugin/plugin_faults.so"},
                                     {"name", "faulty"},
                                     {"options", {{"fault", fault}, {"path", ""}}}},
                                    1);
    trained = *TrainedParameters::Create(model->Parameters(), {});
    training = *Training::Create({.job = &job,
                                  .rank = 0,
                                  .model = model.get(),
                                  .trained = trained.get(),
                                  .communicators = recorded.get()},
                                 nullptr);
    calls.emplace(SessionRollCall::Dependencies{.identity = {},
                                                .control = &control,
                                                .flight = &flight,
                                                .commands = &coordinator,
                                                .session_state = &session_state,
                                                .reports = &reports,
                                                .model = model.get(),
                                                .trained = trained.get(),
                                                .training = training.get()});
    changes.emplace(TrainabilityChanges::Dependencies{
        0, refresh, model.get(), trained.get(), training.get(), &*calls, &session_state, &reports});
  }

  // The number of collectives of training, without roll calls.
  uint64_t collectives() const { return flight.digest().begun; }

  Job job;
  InMemoryCoordinator coordinator;
  SessionState session_state;
  comm::FlightRecorder flight;
  std::unique_ptr<comm::Communicator> recorded;  // the communicator of training
  SessionReports reports;
  std::unique_ptr<models::Model> model;
  std::unique_ptr<TrainedParameters> trained;
  std::unique_ptr<Training> training;
  std::optional<SessionRollCall> calls;
  std::optional<TrainabilityChanges> changes;
};

template <typename Body>
void OnOneRank(const std::string& fault, RefreshMode refresh, const Body& body) {
  RunRanks(1, [&](int, comm::Communicator& control, comm::Communicator& data,
                  comm::Communicator& parameters) {
    Rank rank(fault, refresh, control, data);
    body(rank);
  });
}

TEST(TrainabilityChanges, WhatAHookFreezesIsInForceWithTheNextStep) {
  OnOneRank("steers-in-turn", RefreshMode::kAuto, [](Rank& rank) {
    for (rank.session_state.step = 0; rank.session_state.step < 3; ++rank.session_state.step) {
      const auto plan = rank.changes->BeforeStep();
      ASSERT_TRUE(plan.ok()) << plan.status();
      EXPECT_TRUE(plan->has_value());
      EXPECT_EQ(rank.trained->in_force()[0], rank.session_state.step != 1);
      EXPECT_EQ(rank.trained->FirstFlipped(), -1);
    }
    EXPECT_EQ(rank.trained->version(), 3);
    EXPECT_EQ(rank.coordinator.told_.size(), 2);
  });
}

TEST(TrainabilityChanges, HeldBackItAddsNoRollCall) {
  OnOneRank("steers-in-turn", RefreshMode::kManual, [](Rank& rank) {
    for (rank.session_state.step = 0; rank.session_state.step < 2; ++rank.session_state.step) {
      const auto plan = rank.changes->BeforeStep();
      ASSERT_TRUE(plan.ok()) << plan.status();
      EXPECT_FALSE(plan->has_value());
    }
    EXPECT_TRUE(rank.trained->in_force()[0]);
    ASSERT_EQ(rank.coordinator.told_.size(), 1);
    EXPECT_THAT(rank.coordinator.told_[0].pending, ElementsAre("weight"));
    const auto change = rank.changes->BringPendingIntoForce(4);
    ASSERT_TRUE(change.ok()) << change.status();
    EXPECT_THAT(change->frozen, ElementsAre("weight"));
    EXPECT_EQ(change->command, 4);
    EXPECT_EQ(change->version, 2);
    EXPECT_FALSE(rank.trained->in_force()[0]);
  });
}

TEST(TrainabilityChanges, ChangesByRulesHaveTheirOwnVersion) {
  OnOneRank("none", RefreshMode::kAuto, [](Rank& rank) {
    const auto change = rank.changes->Add({{true, "*"}}, 9);
    ASSERT_TRUE(change.ok()) << change.status();
    EXPECT_THAT(change->frozen, ElementsAre("weight"));
    EXPECT_EQ(change->trained, 0);
    EXPECT_EQ(rank.trained->rules(), (std::vector<TrainableRule>{{true, "*"}}));
    EXPECT_EQ(rank.coordinator.told_.back().change->version, 2);
  });
}

TEST(TrainabilityChanges, AFlagHookGathersNothingWhereAnotherHookDoes) {
  for (const bool flags : {false, true}) {
    OnOneRank(flags ? "flags-in-turn" : "steers-in-turn", RefreshMode::kManual, [&](Rank& rank) {
      rank.session_state.step = 1;
      const uint64_t before = rank.collectives();
      ASSERT_TRUE(rank.changes->BeforeStep().ok());
      EXPECT_THAT(rank.trained->PendingNames(), ElementsAre("weight"));
      if (flags) {
        EXPECT_EQ(rank.collectives(), before);
      } else {
        EXPECT_GT(rank.collectives(), before);
      }
    });
  }
}

TEST(TrainabilityChanges, AFlagHookMayWriteNothing) {
  OnOneRank("flags-writes", RefreshMode::kAuto, [](Rank& rank) {
    EXPECT_THAT(
        std::string(rank.changes->BeforeStep().status().message()),
        HasSubstr("rank 0, before step 1: plug-in worker/models/plugin/plugin_faults.so: model "
                  "'faulty': step hook: a FlagHook freezes and unfreezes parameters and "
                  "does nothing else, but it writes parameter 'weight' (aten::fill_)"));
  });
}

}  // namespace
}  // namespace muster::train
