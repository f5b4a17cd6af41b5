#include "worker/train/rollcall/session_roll_call.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "worker/models/spec_from_json.h"
#include "worker/train/ranks/rank_threads.h"

namespace muster::train {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class NoCommands : public CommandSource {
 public:
  int64_t Newest() const override { return 0; }
  Command Get(int64_t) const override { return {}; }
};

class Losses : public EventSink {
 public:
  void Report(const Event& event) override {
    const auto* step = std::get_if<v1::StepMetrics>(&event);
    if (step != nullptr && !step->has_validation()) {
      losses_[step->step()] = step->loss();
      seconds_[step->step()] = step->duration().seconds() + 1e-9 * step->duration().nanos();
    }
    if (const auto* joined = std::get_if<RanksJoined>(&event)) joined_.push_back(joined->ranks);
    if (const auto* notice = std::get_if<Notice>(&event)) notices_.push_back(notice->message);
  }
  void Progress(int64_t, const char*, const char*) override {}
  std::map<int64_t, double> losses_;
  std::map<int64_t, double> seconds_;
  std::vector<std::vector<JoinedRank>> joined_;
  std::vector<std::string> notices_;
};

class LostLease : public LeaseHolder {
 public:
  absl::Status StillMine() const override { return absl::UnavailableError("the lease is over"); }
};

// One rank with everything that its roll calls need. A step has four samples in a world of two.
struct Rank {
  Rank(int rank, comm::Communicator* control, const LeaseHolder* lease = nullptr)
      : reports(rank, &sink, &session_state),
        model(*models::CreateFromJson("mlp", {{"inputs", 3}, {"hidden", {4}}, {"classes", 2}}, 1)),
        trained(*TrainedParameters::Create(model->Parameters(), {})),
        sampler(*data::Sampler::Create({.size = 40,
                                        .world_size = control->world_size(),
                                        .per_rank = 2,
                                        .order = data::Order::kSequential})),
        calls({.identity = {"job", "instance", 1, rank, "i"},
               .control = control,
               .flight = &flight,
               .commands = &commands,
               .lease = lease,
               .session_state = &session_state,
               .reports = &reports,
               .model = model.get(),
               .trained = trained.get(),
               .sampler = &sampler,
               .samples = 40,
               .full_micro_batches = control->world_size()}) {
    session_state.learning_rate = 0.1;
  }

  // Runs a step as a session does.
  absl::StatusOr<RollCallPlan> Step(double loss, StepOutcome outcome = StepOutcome::kApplied,
                                    std::vector<size_t> unused = {}) {
    calls.PostNext();
    session_state.position = sampler.After(session_state.position);
    ++session_state.step;
    StepResult result{
        .loss_sum = loss, .loss_weight = 1, .outcome = outcome, .unused = std::move(unused)};
    if (!std::isfinite(loss)) result.not_finite = "sample 8";
    const absl::Status taken = calls.TakeIn(PendingStep::Done(result), 4);
    if (!taken.ok()) return taken;
    auto plan = calls.AwaitNext();
    calls.SetSeconds(0.5);
    return plan;
  }

  // Runs a step that the device still computes. `awaited` counts the results that were read.
  absl::StatusOr<RollCallPlan> LateStep(double loss, int* awaited) {
    calls.PostNext();
    session_state.position = sampler.After(session_state.position);
    ++session_state.step;
    const StepResult result{.loss_sum = loss, .loss_weight = 1};
    const auto await = [=] {
      ++*awaited;
      return result;
    };
    const absl::Status taken = calls.TakeIn({.late = true, .await = await}, 4);
    if (!taken.ok()) return taken;
    auto plan = calls.AwaitNext();
    calls.SetSeconds(0.5);
    return plan;
  }

  NoCommands commands;
  Losses sink;
  SessionState session_state;
  comm::FlightRecorder flight;
  SessionReports reports;
  std::unique_ptr<models::Model> model;
  std::unique_ptr<TrainedParameters> trained;
  data::Sampler sampler;
  SessionRollCall calls;
};

TEST(SessionRollCall, TheLossOfAStepTravelsInTheNextCallAndIsReportedOnce) {
  RunRanks(2,
           [](int number, comm::Communicator& control, comm::Communicator&, comm::Communicator&) {
             Rank rank(number, &control);
             ASSERT_TRUE(rank.calls.CallNow().ok());
             for (int step = 1; step <= 3; ++step) {
               const auto plan = rank.Step(step + number);
               ASSERT_TRUE(plan.ok()) << plan.status();
               EXPECT_EQ(plan->inputs.samples, 4);
               EXPECT_EQ(plan->inputs.divisor, 2);
             }
             ASSERT_TRUE(rank.calls.CallNow().ok());
             ASSERT_TRUE(rank.calls.CallNow().ok());
             const std::map<int64_t, double> expected = {{1, 1.5}, {2, 2.5}, {3, 3.5}};
             EXPECT_EQ(rank.sink.losses_, number == 0 ? expected : (std::map<int64_t, double>()));
           });
}

TEST(SessionRollCall, ParametersThatNoRankUsedAreNamedOnceByTheLeader) {
  RunRanks(2,
           [](int number, comm::Communicator& control, comm::Communicator&, comm::Communicator&) {
             Rank rank(number, &control);
             ASSERT_TRUE(rank.calls.CallNow().ok());
             // Each rank notes the unused parameters of the pieces that it updates.
             for (int step = 1; step <= 3; ++step) {
               const auto plan = rank.Step(1, StepOutcome::kApplied,
                                           number == 1 && step > 1 ? std::vector<size_t>{1, 3}
                                                                   : std::vector<size_t>{});
               ASSERT_TRUE(plan.ok()) << plan.status();
             }
             ASSERT_TRUE(rank.calls.CallNow().ok());
             if (number == 0) {
               EXPECT_THAT(rank.sink.notices_,
                           ElementsAre(HasSubstr("no rank used 2 trainable parameters in step 2: " +
                                                 rank.model->Parameters()[1].name + ", ")));
             } else {
               EXPECT_TRUE(rank.sink.notices_.empty());
             }
           });
}

// Late steps are those of a GPU.
TEST(SessionRollCall, TheLossesOfLateStepsTravelOneStepLaterAndABlockingCallWaitsForThem) {
  RunRanks(2,
           [](int number, comm::Communicator& control, comm::Communicator&, comm::Communicator&) {
             Rank rank(number, &control);
             ASSERT_TRUE(rank.calls.CallNow().ok());
             int awaited = 0;
             for (int step = 1; step <= 4; ++step) {
               const auto plan = rank.LateStep(step + number, &awaited);
               ASSERT_TRUE(plan.ok()) << plan.status();
               EXPECT_EQ(awaited, step - 1);
             }
             std::map<int64_t, double> expected = {{1, 1.5}, {2, 2.5}};
             if (number == 0) {
               EXPECT_EQ(rank.sink.losses_, expected);
             }
             ASSERT_TRUE(rank.calls.CallNow().ok());
             EXPECT_EQ(awaited, 4);
             expected[3] = 3.5;
             expected[4] = 4.5;
             if (number == 0) {
               EXPECT_EQ(rank.sink.losses_, expected);
             }
             // The times between two results, not the 0.5 that the test passes to SetSeconds.
             for (const auto& [step, seconds] : rank.sink.seconds_) {
               EXPECT_GT(seconds, 0) << step;
               EXPECT_NE(seconds, 0.5) << step;
             }
           });
}

TEST(SessionRollCall, AnErrorThatIsFoundLateEndsTheCall) {
  RunRanks(
      2, [](int number, comm::Communicator& control, comm::Communicator&, comm::Communicator&) {
        Rank rank(number, &control);
        ASSERT_TRUE(rank.calls.CallNow().ok());
        rank.calls.PostNext();
        ++rank.session_state.step;
        const absl::Status failed = absl::UnavailableError("rank 1 is gone");
        ASSERT_TRUE(rank.calls.TakeIn({.late = true, .await = [&] { return failed; }}, 4).ok());
        ASSERT_TRUE(rank.calls.AwaitNext().ok());
        EXPECT_EQ(rank.calls.CallNow().status(), failed);
      });
}

TEST(SessionRollCall, AnAttemptThatOneRankDoesNotMakeIsNamed) {
  RunRanks(
      2, [](int number, comm::Communicator& control, comm::Communicator&, comm::Communicator&) {
        Rank rank(number, &control);
        ASSERT_TRUE(rank.calls.CallNow().ok());
        if (number == 1) rank.calls.PostNext();
        const auto plan = number == 1 ? rank.calls.AwaitNext() : rank.calls.CallNow();
        EXPECT_THAT(std::string(plan.status().message()), HasSubstr("the ranks differ in step"));
      });
}

TEST(SessionRollCall, RanksThatWantDifferentParametersAreNamedWithTheFirstOne) {
  RunRanks(2,
           [](int number, comm::Communicator& control, comm::Communicator&, comm::Communicator&) {
             Rank rank(number, &control);
             rank.trained->Want(number == 0 ? Mask{false, true, true, true}
                                            : Mask{false, false, true, true});
             EXPECT_EQ(rank.calls.CallNow().status(),
                       absl::FailedPreconditionError(
                           "roll call of step 1: the ranks differ in which parameters are trained: "
                           "'layers.0.bias' is trained on rank 0 and frozen on rank 1"));
           });
}

TEST(SessionRollCall, ALossThatIsNotFiniteIsToldWithItsOrigin) {
  RunRanks(2,
           [](int number, comm::Communicator& control, comm::Communicator&, comm::Communicator&) {
             Rank rank(number, &control);
             ASSERT_TRUE(rank.calls.CallNow().ok());
             // The call after the step tells all ranks of the loss.
             absl::Status status = rank.Step(number == 1 ? std::nan("") : 1).status();
             if (status.ok()) status = rank.calls.CallNow().status();
             EXPECT_TRUE(absl::IsOutOfRange(status)) << status;
             EXPECT_THAT(std::string(status.message()),
                         HasSubstr("the loss that is not finite comes from sample 8"));
           });
}

TEST(SessionRollCall, AHundredSkippedStepsInARowEndTheJob) {
  RunRanks(
      1, [](int number, comm::Communicator& control, comm::Communicator&, comm::Communicator&) {
        Rank rank(number, &control);
        for (int step = 1; step <= 150; ++step) {
          const StepOutcome outcome = step == 30 ? StepOutcome::kApplied : StepOutcome::kSkipped;
          const absl::Status status = rank.Step(1, outcome).status();
          EXPECT_EQ(rank.calls.outcome(), outcome);
          if (step < 130) {
            ASSERT_TRUE(status.ok()) << step << ": " << status;
            continue;
          }
          EXPECT_THAT(std::string(status.message()),
                      HasSubstr("all steps from 31 to 130 were skipped"));
          return;
        }
      });
}

TEST(LossReports, AStepWhoseLossNoCallReportedHasNoLossAndNoPerplexity) {
  const auto model = *models::CreateFromJson(
      "gpt2", {{"vocab_size", 8}, {"context", 2}, {"layers", 1}, {"heads", 1}, {"width", 4}}, 1);
  LossReports reports(0);
  reports.Add(1, 4, *model);
  reports.Add(2, 4, *model);
  const std::vector<v1::StepMetrics> complete = reports.Complete({.step = 2, .mean = 1.5}, *model);
  ASSERT_EQ(complete.size(), 2u);
  EXPECT_EQ(complete[0].step(), 1u);
  EXPECT_FALSE(complete[0].has_loss());
  EXPECT_FALSE(complete[0].has_perplexity());
  EXPECT_DOUBLE_EQ(complete[1].loss(), 1.5);
  EXPECT_DOUBLE_EQ(complete[1].perplexity(), std::exp(1.5));
}

TEST(SessionRollCall, WhoseLeaseIsOverGoesOnWithNoCall) {
  RunRanks(1,
           [](int number, comm::Communicator& control, comm::Communicator&, comm::Communicator&) {
             const LostLease lease;
             Rank rank(number, &control, &lease);
             EXPECT_TRUE(absl::IsUnavailable(rank.calls.CallNow().status()));
           });
}

}  // namespace
}  // namespace muster::train
