#include "worker/control/worker_end.h"

#include <gtest/gtest.h>

#include <string>

#include "worker/control/fake_control_stream.h"

namespace muster::control {
namespace {

TEST(WorkerEnd, AGoodEndSaysHowFarItCameAndWhy) {
  const v1::WorkerReport report = EndReport(
      {.end = {.step = 7, .stopped = true, .preempted = true, .ended_early = "no input is left"}});
  ASSERT_TRUE(report.has_finished());
  EXPECT_EQ(report.finished().step(), 7u);
  EXPECT_TRUE(report.finished().preempted());
  EXPECT_EQ(report.finished().ended_early(), "no input is left");
}

TEST(WorkerEnd, AFailureSaysWhatItMeansForTheJob) {
  const absl::Status error =
      train::WithCause(absl::InternalError("bad \xff byte"), train::Cause::kFinalSaveFailed);
  const auto report = [&error](train::FailureKind kind) {
    return EndReport({.end = {.step = 5}, .error = error, .kind = kind}).failure();
  };
  const v1::WorkerFailure transient = report(train::FailureKind::kTransient);
  EXPECT_EQ(transient.step(), 5u);
  EXPECT_EQ(transient.reason().find("bad "), 0u);
  EXPECT_EQ(transient.reason().find('\xff'), std::string::npos) << "it would not be sent";
  EXPECT_EQ(transient.kind(), v1::WorkerFailure::FINAL_SAVE_FAILED);
  EXPECT_FALSE(transient.permanent());
  EXPECT_FALSE(transient.consequence());
  EXPECT_TRUE(report(train::FailureKind::kPermanent).permanent());
  EXPECT_FALSE(report(train::FailureKind::kPermanent).consequence());
  EXPECT_TRUE(report(train::FailureKind::kConsequence).consequence());
  EXPECT_FALSE(report(train::FailureKind::kConsequence).permanent());
}

TEST(WorkerEnd, AFaultOfTheNodeMayBePermanent) {
  const absl::Status error =
      train::WithCause(absl::FailedPreconditionError("no address"), train::Cause::kNodeFault);
  const v1::WorkerFailure failure =
      EndReport({.error = error, .kind = train::FailureKind::kPermanent}).failure();
  EXPECT_EQ(failure.kind(), v1::WorkerFailure::NODE_FAULT);
  EXPECT_TRUE(failure.permanent());
}

TEST(WorkerEnd, IsReportedOnceAndWaitedFor) {
  FakeMeeting meeting;
  FakeControlStream good({}, &meeting);
  WorkerEnd finished{.end = {.step = 3}};
  ReportEnd(good, finished);
  ReportEnd(good, finished);
  EXPECT_EQ(good.reports().size(), 1u);
  FakeControlStream late({}, &meeting);
  late.answers_after = 3;
  EXPECT_EQ(FlushUnlessPreempted(late, absl::InfiniteDuration()), absl::OkStatus())
      << "what is done must not be done anew";
  FakeControlStream preempted({}, &meeting);
  preempted.answers_after = 1 << 30;
  preempted.notice_after = 2;
  EXPECT_FALSE(FlushUnlessPreempted(preempted, absl::InfiniteDuration()).ok());
  EXPECT_EQ(preempted.notice_after, 0) << "its checkpoint is written";
  FakeControlStream bad({}, &meeting);
  bad.flushed = absl::DeadlineExceededError("not acknowledged");
  WorkerEnd failed{.error = absl::InternalError("broken")};
  ReportEnd(bad, failed);
  EXPECT_EQ(bad.reports().size(), 1u);
  EXPECT_EQ(bad.flush_timeout, absl::Seconds(2)) << "the others wait for this process's end";
}

}  // namespace
}  // namespace muster::control
