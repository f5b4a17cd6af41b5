#include "worker/control/report_spool.h"

#include <gtest/gtest.h>

#include <vector>

namespace muster::control {
namespace {

v1::WorkerReport Step(uint64_t step) {
  v1::WorkerReport report;
  report.mutable_step()->set_step(step);
  return report;
}

std::vector<uint64_t> Drain(Outbox* outbox) {
  std::vector<uint64_t> sequences;
  while (auto report = outbox->Next()) sequences.push_back(report->sequence());
  return sequences;
}

TEST(Outbox, SendsInOrderAndEachOnceOnAConnection) {
  Outbox outbox;
  outbox.Add(Step(10));
  outbox.Add(Step(11));
  EXPECT_EQ(Drain(&outbox), (std::vector<uint64_t>{1, 2}));
  outbox.Add(Step(12));
  EXPECT_EQ(Drain(&outbox), (std::vector<uint64_t>{3}));
  EXPECT_FALSE(outbox.empty());
}

TEST(Outbox, AfterAReconnectOnlyWhatIsNotDurableIsSentAgain) {
  Outbox outbox;
  for (int i = 0; i < 4; ++i) outbox.Add(Step(i));
  Drain(&outbox);
  outbox.Acknowledge(1);
  outbox.Rewind(2);  // the acknowledgement of 2 was lost on the way
  EXPECT_EQ(Drain(&outbox), (std::vector<uint64_t>{3, 4}));
  outbox.Rewind(0);  // an older number does not bring back acknowledged reports
  EXPECT_EQ(Drain(&outbox), (std::vector<uint64_t>{3, 4}));
}

TEST(Outbox, IsEmptyOnceAllIsAcknowledged) {
  Outbox outbox;
  outbox.Add(Step(1));
  outbox.Add(Step(2));
  outbox.Acknowledge(2);
  EXPECT_TRUE(outbox.empty());
  EXPECT_FALSE(outbox.HasNext());
  outbox.Add(Step(3));
  EXPECT_EQ(Drain(&outbox), (std::vector<uint64_t>{3}));
}

TEST(Outbox, AnAcknowledgementBeyondTheNewestIsHarmless) {
  Outbox outbox;
  outbox.Add(Step(1));
  outbox.Acknowledge(7);
  outbox.Add(Step(2));
  EXPECT_EQ(Drain(&outbox), (std::vector<uint64_t>{2}));
}

TEST(Outbox, SaysWhatFollowsANumberAsItGoesOverTheWire) {
  Outbox outbox;
  for (uint64_t step : {10, 11, 12}) outbox.Add(Step(step));
  outbox.Acknowledge(1);
  v1::WorkerReport report;
  const auto after = outbox.After(2);
  ASSERT_EQ(after.size(), 1);
  ASSERT_TRUE(report.ParseFromString(after[0]));
  EXPECT_EQ(report.sequence(), 3);
  EXPECT_EQ(report.step().step(), 12);
  EXPECT_EQ(outbox.After(0).size(), 2);
  EXPECT_EQ(outbox.last(), 3);
}

TEST(Outbox, ThinningTakesEverySecondStepAndNothingElse) {
  Outbox outbox;
  for (uint64_t step : {10, 11, 12, 13}) outbox.Add(Step(step));
  v1::WorkerReport checkpoint;
  checkpoint.mutable_checkpoint_written()->set_step(13);
  outbox.Add(checkpoint);
  const size_t before = outbox.bytes();
  EXPECT_TRUE(outbox.Thin());
  EXPECT_LT(outbox.bytes(), before);
  std::vector<uint64_t> left;
  std::vector<uint64_t> sequences;
  while (const auto report = outbox.Next()) {
    sequences.push_back(report->sequence());
    if (report->has_step()) left.push_back(report->step().step());
  }
  EXPECT_EQ(left, (std::vector<uint64_t>{11, 13}));
  EXPECT_EQ(sequences, (std::vector<uint64_t>{1, 2, 3, 4, 5})) << "no number is missing";
  while (outbox.Thin()) {
  }
  EXPECT_TRUE(outbox.After(4).back().size() > 2) << "the checkpoint stays";
  outbox.Acknowledge(5);
  EXPECT_EQ(outbox.bytes(), 0);
}

}  // namespace
}  // namespace muster::control
