#include "worker/train/start/continuation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "common/manifest/sampling_record.h"
#include "worker/train/job/stages.h"

namespace muster::train {
namespace {

using manifest::SamplingRecord;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;

SamplingRecord Own(int64_t samples, int64_t global_batch, const std::string& last = "drop") {
  return {.samples = samples,
          .global_batch = global_batch,
          .last = last,
          .order = "shuffled",
          .seed = 7};
}

std::vector<Stage> Epochs(int64_t epochs, int64_t validate_every = 0) {
  return {FitStage{.steps = 0, .validate_every = validate_every, .epochs = epochs}};
}

// A job of one stage, as a chain of sessions. Each session begins at the end of the session before.
class OneJob {
 public:
  explicit OneJob(std::vector<Stage> stages) : stages_(std::move(stages)) {}

  // Runs at most `most` steps. Returns the notices.
  std::vector<std::pair<std::string, std::string>> Session(const SamplingRecord& own,
                                                           int64_t most = 1000) {
    Continuation now{.sampling = {own}};
    if (!past_.sampling.empty()) now = Continue(past_, {own, 1, stages_, {}});
    past_.sampling = now.sampling;
    past_.position = now.position;
    if (now.pass_due) passes_.push_back(past_.step);
    const data::Timeline timeline = TimelineOf(now.sampling);
    const auto planned = PlanStages(stages_, timeline);
    total_ = TotalSteps(planned);
    const data::Pace pace = timeline.newest().pace;
    for (int64_t i = 0; i < most && past_.step < total_; ++i) {
      const data::Position begin = pace.Begin(past_.position);
      past_.position = pace.After(past_.position);
      EXPECT_EQ(past_.position, timeline.After(past_.step + 1));
      trained_[begin.epoch] += past_.position.cursor - begin.cursor;
      ++past_.step;
      const auto fit = FitOfStep(planned, past_.step);
      if (fit->validate.Has(past_.step)) passes_.push_back(past_.step);
    }
    return now.told;
  }

  const CheckpointSampling& past() const { return past_; }
  int64_t step() const { return past_.step; }
  bool over() const { return past_.step == total_; }
  // The number of trained samples of each epoch.
  const std::map<int64_t, int64_t>& trained() const { return trained_; }
  // The steps after which a validation pass ran.
  const std::vector<int64_t>& passes() const { return passes_; }

 private:
  const std::vector<Stage> stages_;
  CheckpointSampling past_;
  int64_t total_ = 0;
  std::map<int64_t, int64_t> trained_;
  std::vector<int64_t> passes_;
};

TEST(Continue, TheSameBatchAndDataGoOnAsTheyWere) {
  OneJob run(Epochs(2));
  run.Session(Own(149, 12), 14);
  const CheckpointSampling past = run.past();
  const Continuation found = Continue(past, {Own(149, 12), 1, Epochs(2), {}});
  EXPECT_EQ(found.sampling, past.sampling);
  EXPECT_EQ(found.position, past.position);
  EXPECT_FALSE(found.pass_due);
  EXPECT_THAT(found.told, IsEmpty());
}

TEST(Continue, TwoEpochsAreTwoPassesWithAnyBatch) {
  // Batches of 1, 2 or 3 ranks, of per_rank 2, of accumulate 2, and others.
  for (const int64_t batch : {2, 6, 8, 3, 5, 24, 1}) {
    for (const int64_t steps : {6, 4, 1, 9}) {
      OneJob run(Epochs(2, 1));
      run.Session(Own(24, 4), steps);
      run.Session(Own(24, batch, "uneven"));
      EXPECT_TRUE(run.over());
      EXPECT_THAT(run.trained(), ElementsAre(Pair(0, 24), Pair(1, 24))) << batch << " " << steps;
      EXPECT_EQ(run.passes().size(), 2u) << batch << " " << steps;
    }
  }
}

TEST(Continue, WhateverChangesHoweverOftenEachPassIsDoneOnce) {
  std::mt19937 random(1);
  const auto draw = [&random](int64_t from, int64_t to) {
    return std::uniform_int_distribution<int64_t>(from, to)(random);
  };
  for (int i = 0; i < 2000; ++i) {
    const int64_t samples = draw(20, 60);
    const int64_t epochs = draw(1, 5);
    const int64_t every = draw(1, 3);
    const std::string last = std::vector<std::string>{"drop", "pad", "uneven"}[draw(0, 2)];
    OneJob run(Epochs(epochs, every));
    int64_t largest = 0;
    bool over = false;
    while (!over) {
      const int64_t batch = draw(1, 20);
      largest = std::max(largest, batch);
      run.Session(Own(samples, batch, last), draw(0, 1) == 0 ? draw(1, 4) : draw(1, 30));
      over = run.over();
    }
    ASSERT_LE(run.trained().rbegin()->first, epochs - 1);
    for (int64_t epoch = 0; epoch < epochs; ++epoch) {
      const auto found = run.trained().find(epoch);
      const int64_t trained = found == run.trained().end() ? 0 : found->second;
      ASSERT_LE(trained, samples);
      ASSERT_GE(trained, last == "drop" ? samples - largest + 1 : samples);
    }
    ASSERT_EQ(run.passes().size(), static_cast<size_t>(epochs / every));
    ASSERT_TRUE(std::is_sorted(run.passes().begin(), run.passes().end()));
  }
}

TEST(Continue, WhatTheFormerBatchDroppedStaysDropped) {
  OneJob run(Epochs(2, 1));
  run.Session(Own(26, 4), 6);
  ASSERT_EQ(run.past().position, (data::Position{0, 24}));
  run.Session(Own(26, 2), 0);
  EXPECT_EQ(run.past().position, (data::Position{1, 0})) << "not the last two samples";
  run.Session(Own(26, 2));
  EXPECT_EQ(run.step(), 6 + 13);
  EXPECT_THAT(run.passes(), ElementsAre(6, 19));
}

TEST(Continue, AChangeThatDropsTheRestOfTheLastEpochEndsTheStageWithItsPass) {
  OneJob run(Epochs(1, 1));
  run.Session(Own(24, 4), 5);
  run.Session(Own(24, 8));
  EXPECT_TRUE(run.over());
  EXPECT_EQ(run.step(), 5);
  EXPECT_THAT(run.passes(), ElementsAre(5));
}

TEST(Continue, AStageThatBeganWithinAnEpochEndsAtTheSamePlace) {
  OneJob run({FitStage{.steps = 3}, FitStage{.steps = 0, .validate_every = 1, .epochs = 2}});
  run.Session(Own(24, 4), 5);  // the second stage began at sample 12
  run.Session(Own(24, 2));
  EXPECT_EQ(run.past().position, (data::Position{2, 12}));
  EXPECT_THAT(run.trained(), ElementsAre(Pair(0, 24), Pair(1, 24), Pair(2, 12)));
  EXPECT_THAT(run.passes(), ElementsAre(5 + 2 + 6, 5 + 2 + 12 + 6));
}

TEST(Continue, NamesTheStepsBeforeAndAfter) {
  OneJob run(Epochs(2));
  EXPECT_THAT(run.Session(Own(24, 4), 6), IsEmpty());
  EXPECT_THAT(
      run.Session(Own(24, 8)),
      ElementsAre(Pair("STEPS_PER_EPOCH_CHANGED",
                       "a step takes 8 samples instead of 4; an epoch has 24 (last: drop); "
                       "training goes on at epoch 1, sample 0: after step 6, 3 steps instead of 6 "
                       "remain, 9 in all instead of 12; a schedule without total_steps ends with "
                       "step 9 instead of 12")));
  EXPECT_EQ(run.step(), 9);
  // The number of steps of a stage by steps does not change.
  OneJob steps({FitStage{.steps = 20}});
  steps.Session(Own(24, 4), 6);
  EXPECT_THAT(steps.Session(Own(24, 8)), IsEmpty());
  EXPECT_EQ(steps.step(), 20);
}

TEST(Continue, NamesOtherDataAndAnotherOrderWithinAnEpoch) {
  const auto told = [](int64_t steps, const SamplingRecord& own) {
    OneJob run(Epochs(2));
    run.Session(Own(24, 4), steps);
    std::map<std::string, std::string> by_reason;
    for (const auto& [reason, text] : run.Session(own)) by_reason[reason] = text;
    return by_reason;
  };
  auto found = told(4, Own(40, 4));
  EXPECT_THAT(found["DATA_SIZE_CHANGED"],
              HasSubstr("data.train has 40 samples in an epoch, and had 24 when the checkpoint was "
                        "written: training goes on at epoch 0, sample 16, and the order depends on "
                        "the size: in this epoch some samples come twice"));
  EXPECT_THAT(found["STEPS_PER_EPOCH_CHANGED"], HasSubstr("16 steps instead of 8 remain"));
  found = told(6, Own(40, 4));
  EXPECT_THAT(found["DATA_SIZE_CHANGED"], HasSubstr("training goes on at epoch 1, sample 0"));
  EXPECT_THAT(found["DATA_SIZE_CHANGED"], Not(HasSubstr("twice")));
  SamplingRecord other = Own(24, 4);
  other.seed = 8;
  EXPECT_THAT(told(4, other),
              ElementsAre(Pair("DATA_ORDER_CHANGED",
                               HasSubstr("epoch 0, sample 16 of 24 with order shuffled and seed 8, "
                                         "and this epoch was begun with order shuffled and seed 7: "
                                         "in this epoch some samples come twice"))));
  EXPECT_THAT(told(6, other), IsEmpty()) << "the next epoch has any order";
  other = Own(24, 4);
  other.order = "sequential";
  EXPECT_THAT(told(4, other)["DATA_ORDER_CHANGED"], HasSubstr("with order sequential, and"));
  other.seed = 8;
  OneJob sequential(Epochs(2));
  SamplingRecord first = other;
  first.seed = 1;
  sequential.Session(first, 4);
  EXPECT_THAT(sequential.Session(other), IsEmpty()) << "the seed has no effect";
  // The new data has fewer samples than were consumed.
  OneJob fewer(Epochs(2, 1));
  fewer.Session(Own(24, 4), 4);
  EXPECT_EQ(fewer.Session(Own(12, 4))[0].first, "DATA_SIZE_CHANGED");
  EXPECT_EQ(fewer.step(), 4 + 3);
  EXPECT_THAT(fewer.passes(), ElementsAre(4, 7));
}

TEST(Continue, ACheckpointOfAnOlderProgramIsReadByItsRanksOrItsPosition) {
  const auto at = [](int64_t step, data::Position position, int64_t world_size) {
    return CheckpointSampling{
        .step = step, .position = position, .sampling = {}, .world_size = world_size};
  };
  // 2 ranks wrote the checkpoint with 4 samples per step; 1 rank continues with 2 samples per step.
  auto found = Continue(at(6, {0, 24}, 2), {Own(26, 2), 1, Epochs(2), {}});
  EXPECT_EQ(found.sampling.size(), 2u);
  EXPECT_EQ(found.sampling[0].global_batch, 4);
  EXPECT_EQ(found.position, (data::Position{1, 0})) << "2 samples were dropped";
  EXPECT_THAT(found.told, ElementsAre(Pair("STEPS_PER_EPOCH_CHANGED", HasSubstr("instead of 4"))));
  // The ranks are the same.
  found = Continue(at(6, {0, 24}, 2), {Own(26, 4), 2, Epochs(2), {}});
  EXPECT_EQ(found.position, (data::Position{0, 24}));
  EXPECT_THAT(found.told, IsEmpty());
  // Another per_rank: the batch follows from the position.
  found = Continue(at(4, {0, 16}, 2), {Own(26, 8), 2, Epochs(2), {}});
  EXPECT_EQ(found.sampling[0].global_batch, 4);
  found = Continue(at(9, {1, 12}, 2), {Own(26, 8), 2, Epochs(2), {}});
  EXPECT_EQ(found.sampling[0].global_batch, 4);
  found = Continue(at(3, {1, 20}, 2), {Own(26, 2, "uneven"), 2, Epochs(2), {}});
  EXPECT_EQ(found.sampling[0].global_batch, 20) << "20, 6, and 20 of the second epoch";
  // No batch fits: the rest is still counted from the position.
  for (const int64_t step : {2, 3, 10, 20}) {
    for (const int64_t batch : {2, 8}) {
      found = Continue(at(step, {1, 7}, 2), {Own(26, batch), 2, Epochs(2), {}});
      EXPECT_EQ(found.position, (data::Position{1, 7}));
      const auto planned = PlanStages(Epochs(2), TimelineOf(found.sampling));
      EXPECT_EQ(TotalSteps(planned), step + 19 / batch) << "of 26 samples, 7 were taken";
      EXPECT_THAT(found.told,
                  ElementsAre(Pair("STEPS_PER_EPOCH_CHANGED", HasSubstr("not known"))));
    }
  }
}

TEST(Continue, RecordsThatDoNotLeadToThePositionDoNotCount) {
  OneJob run(Epochs(2));
  run.Session(Own(24, 4), 6);
  for (auto change : std::vector<void (*)(CheckpointSampling*)>{
           [](CheckpointSampling* past) { past->position.cursor = 20; },
           [](CheckpointSampling* past) { past->sampling[0].last = "newer"; },
           [](CheckpointSampling* past) { past->sampling[0].step = 1; },
           [](CheckpointSampling* past) { past->sampling[0].global_batch = 25; },
           [](CheckpointSampling* past) { past->sampling.push_back(past->sampling[0]); }}) {
    CheckpointSampling past = run.past();
    change(&past);
    const Continuation found = Continue(past, {Own(24, 4), 1, Epochs(2), {}});
    EXPECT_EQ(found.position, past.position);
    EXPECT_EQ(TimelineOf(found.sampling).After(past.step), past.position);
  }
}

}  // namespace
}  // namespace muster::train
