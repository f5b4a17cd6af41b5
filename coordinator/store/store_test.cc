// Loading at a start, and log lines, in every kind of store.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "coordinator/jobs/events.h"
#include "coordinator/store/store_fixture.h"

namespace muster::store {
namespace {

TEST_P(StoreTest, StartsEmpty) {
  const Image image = Load();
  EXPECT_TRUE(image.jobs.empty());
  EXPECT_TRUE(image.nodes.empty());
  EXPECT_TRUE(image.requests.empty());
  EXPECT_TRUE(store().ReadMetrics(MetricsOf::kSteps, "a", 0, 10)->empty());
  EXPECT_TRUE(store().ReadLogs("a", 0, {}, 10)->empty());
}

TEST_P(StoreTest, EveryFieldOfAJobComesBack) {
  ASSERT_TRUE(store().Commit({.jobs = {NewRows(FullJob("a", 1))}}).ok());
  kind->Reopen();
  const Image image = Load();
  ASSERT_EQ(image.jobs.size(), 1);
  ExpectSame(image.jobs[0], FullJob("a", 1));
}

TEST_P(StoreTest, JobsComeInTheOrderOfTheirNumbers) {
  ASSERT_TRUE(store()
                  .Commit({.jobs = {NewRows(FullJob("a", 3)), NewRows(FullJob("b", 1)),
                                    NewRows(FullJob("c", 2))}})
                  .ok());
  const Image image = Load();
  ASSERT_EQ(image.jobs.size(), 3);
  EXPECT_EQ(image.jobs[0].id, "b");
  EXPECT_EQ(image.jobs[2].id, "a");
  ExpectSame(image.jobs[2], FullJob("a", 3));
}

TEST_P(StoreTest, ChangedRanksAreReplacedAndOtherRowsStay) {
  jobs::Job job = FullJob("a", 1);
  JobRows rows;
  ASSERT_TRUE(store().Commit({.jobs = {rows.TakeChanges(&job)}}).ok());
  job.step = 18;
  job.ranks[0].acked_report = 13;
  jobs::Job expected = job;
  job.ranks[1].acked_report = 99;
  job.checkpoints.clear();
  job.failures.clear();
  ASSERT_TRUE(store().Commit({.jobs = {rows.TakeRanks(job, {0})}}).ok());
  kind->Reopen();
  ExpectSame(Load().jobs[0], expected);
}

TEST_P(StoreTest, ChangedRowsAreReplacedAndRemovedRowsAreDeleted) {
  jobs::Job job = FullJob("a", 1);
  JobRows rows;
  ASSERT_TRUE(store().Commit({.jobs = {rows.TakeChanges(&job)}}).ok());
  job.ranks.resize(1);
  job.checkpoints[1].bad_reason.clear();
  job.checkpoints.erase(job.checkpoints.begin());
  job.dropped_checkpoints = {"p8"};
  job.failures.clear();
  job.alive()->rendezvous.reset();
  job.newest_step.clear();
  job.commands.Finished(3, {.time = job.create_time});
  job.commands.Append({.kind = v1::Operation::PAUSE});
  job.trainability.history.erase(job.trainability.history.begin());
  job.trainability.history[0].contents = "changed";
  job.trainability.history.push_back({.version = 4});
  job.trainability.version = 4;
  ASSERT_TRUE(store().Commit({.jobs = {rows.TakeChanges(&job)}}).ok());
  kind->Reopen();
  ExpectSame(Load().jobs[0], job);
}

TEST_P(StoreTest, CheckpointsComeByGenerationAndStep) {
  jobs::Job job = FullJob("a", 1);
  // The second generation began again from an earlier step.
  job.checkpoints = {{.step = 10, .generation = 1, .path = "p10"},
                     {.step = 20, .generation = 1, .path = "p20"},
                     {.step = 15, .generation = 2, .path = "p15"}};
  ASSERT_TRUE(store().Commit({.jobs = {NewRows(job)}}).ok());
  kind->Reopen();
  EXPECT_EQ(Load().jobs[0].checkpoints, job.checkpoints);
}

TEST_P(StoreTest, DeliveriesComeByNumberAndStayUntilTheyAreRemoved) {
  const DeliveryRow first = {.number = 9,
                             .receiver = "http://a/",
                             .id = "d-1",
                             .job_id = "a",
                             .create_time = absl::FromUnixMicros(1234567890123456),
                             .body = std::string("\0{}", 3)};
  DeliveryRow second = first;
  second.number = 10;
  second.receiver = "http://b/";
  ASSERT_TRUE(
      store().Commit({.jobs = {NewRows(FullJob("a", 1))}, .deliveries = {second, first}}).ok());
  kind->Reopen();
  EXPECT_EQ(Load().deliveries, (std::vector<DeliveryRow>{first, second}));
  // Deliveries are also removed without their job.
  ASSERT_TRUE(store().Commit({.removed_jobs = {"a"}, .removed_deliveries = {9, 99}}).ok());
  kind->Reopen();
  EXPECT_EQ(Load().deliveries, std::vector<DeliveryRow>{second});
}

TEST_P(StoreTest, NodesAndRequestsAreUpsertedAndNodesRemoved) {
  const NodeRow n1{"n1", "i1", "h", 2}, n2{"n2", "i2", "h", 1};
  ASSERT_TRUE(store().Commit({.nodes = {n1, n2}, .requests = {{"r1", "f", "a"}}}).ok());
  NodeRow newer = n1;
  newer.incarnation = "i3";
  ASSERT_TRUE(store().Commit({.nodes = {newer}, .removed_nodes = {"n2", "unknown"}}).ok());
  kind->Reopen();
  const Image image = Load();
  EXPECT_EQ(image.nodes, (std::vector<NodeRow>{newer}));
  EXPECT_EQ(image.requests, (std::vector<RequestRow>{{"r1", "f", "a"}}));
}

TEST_P(StoreTest, NodeMarksAreKeptWithoutTheNode) {
  const NodeMarkRow plain{.node = "a"};
  const NodeMarkRow full{.node = "b",
                         .cordoned = true,
                         .drained = true,
                         .reason = "by me",
                         .drain_deadline = absl::Minutes(30),
                         .agent_id = "uuid",
                         .incarnations = {"i1", "i2"},
                         .left_out = {absl::FromUnixMicros(1234567890123456), "3 failures", 2}};
  ASSERT_TRUE(store().Commit({.nodes = {{"b", "i3", "h", 1}}, .node_marks = {plain, full}}).ok());
  ASSERT_TRUE(store().Commit({.removed_nodes = {"b"}}).ok());
  kind->Reopen();
  EXPECT_EQ(Load().node_marks, (std::vector<NodeMarkRow>{plain, full}));
  ASSERT_TRUE(store().Commit({.removed_node_marks = {"b", "unknown"}}).ok());
  kind->Reopen();
  EXPECT_EQ(Load().node_marks, (std::vector<NodeMarkRow>{plain}));
}

TEST_P(StoreTest, ARemovedJobLeavesNothingButItsRequestsAndItsNumber) {
  const auto fill = [](const std::string& id, uint64_t number) {
    Batch batch{.jobs = {NewRows(FullJob(id, number))}};
    batch.requests = {{.request_id = "r-" + id, .fingerprint = "f", .job_id = id}};
    batch.steps = {Step(1, 1, id), Step(2, 2, id)};
    batch.validations = {Pass(2, 0.5, id)};
    batch.logs = {Line(1, 0, id)};
    batch.events = {Event(1, id)};
    return batch;
  };
  ASSERT_TRUE(store().Commit(fill("a", 1)).ok());
  ASSERT_TRUE(store().Commit(fill("b", 2)).ok());
  ASSERT_TRUE(store().Commit({.removed_jobs = {"b", "unknown"}, .last_number = 2}).ok());
  kind->Reopen();
  const Image image = Load();
  ASSERT_EQ(image.jobs.size(), 1);
  jobs::Job kept = FullJob("a", 1);
  kept.events = {Event(1).event};
  ExpectSame(image.jobs[0], kept);
  EXPECT_EQ(image.requests.size(), 2);
  EXPECT_EQ(image.last_number, 2);
  EXPECT_TRUE(store().ReadMetrics(MetricsOf::kSteps, "b", 0, 10)->empty());
  EXPECT_TRUE(store().ReadMetrics(MetricsOf::kValidations, "b", 0, 10)->empty());
  EXPECT_TRUE(store().ReadLogs("b", 0, {}, 10)->empty());
  EXPECT_EQ(store().ReadMetrics(MetricsOf::kSteps, "a", 0, 10)->size(), 2);
  EXPECT_EQ(store().ReadMetrics(MetricsOf::kValidations, "a", 0, 10)->size(), 1);
  EXPECT_EQ(store().ReadLogs("a", 0, {}, 10)->size(), 1);
}

TEST_P(StoreTest, AJobThatIsRemovedAndSubmittedAgainIsTheNewOne) {
  ASSERT_TRUE(store()
                  .Commit({.jobs = {NewRows(FullJob("a", 1))},
                           .steps = {Step(1, 1), Step(2, 2)},
                           .logs = {Line(1), Line(2)},
                           .events = {Event(1)}})
                  .ok());
  jobs::Job next;
  next.id = "a";
  next.number = 2;
  Batch batch{.jobs = {NewRows(next)}, .removed_jobs = {"a"}, .last_number = 2};
  batch.steps = {Step(1, 7)};
  batch.logs = {Line(1)};
  ASSERT_TRUE(store().Commit(batch).ok());
  kind->Reopen();
  const Image image = Load();
  ASSERT_EQ(image.jobs.size(), 1);
  ExpectSame(image.jobs[0], next);
  EXPECT_EQ(*store().ReadMetrics(MetricsOf::kSteps, "a", 0, 10),
            (std::vector<MetricsRow>{Step(1, 7)}));
  EXPECT_EQ(store().ReadLogs("a", 0, {}, 10)->size(), 1);
}

TEST_P(StoreTest, TheHighestNumberIsKnownWithAndWithoutRemovedJobs) {
  EXPECT_EQ(Load().last_number, 0);
  ASSERT_TRUE(store().Commit({.jobs = {NewRows(FullJob("a", 3)), NewRows(FullJob("b", 9))}}).ok());
  kind->Reopen();
  EXPECT_EQ(Load().last_number, 9);
  ASSERT_TRUE(store().Commit({.removed_jobs = {"a", "b"}, .last_number = 11}).ok());
  ASSERT_TRUE(store().Commit({.jobs = {NewRows(FullJob("c", 10))}}).ok());
  kind->Reopen();
  EXPECT_EQ(Load().last_number, 11);
}

TEST_P(StoreTest, RequestsOfDeletedJobsKeepTheirAnswerUntilTheyAreRemoved) {
  const RequestRow row{.request_id = "r",
                       .fingerprint = "f",
                       .job_id = "a",
                       .deleted_time = absl::FromUnixMicros(1234567890123456),
                       .answer = std::string("bytes\0with zero", 15)};
  const RequestRow other{.request_id = "s", .fingerprint = "g", .job_id = "a"};
  ASSERT_TRUE(store().Commit({.requests = {row, other}}).ok());
  kind->Reopen();
  EXPECT_EQ(Load().requests, (std::vector<RequestRow>{row, other}));
  ASSERT_TRUE(store().Commit({.removed_requests = {"r", "unknown"}}).ok());
  kind->Reopen();
  EXPECT_EQ(Load().requests, (std::vector<RequestRow>{other}));
}

TEST_P(StoreTest, LogsAreReadAfterASequenceAndByRank) {
  ASSERT_TRUE(store().Commit({.logs = {Line(1), Line(2, 1), Line(3), Line(1, 0, "b")}}).ok());
  kind->Reopen();
  EXPECT_EQ(*store().ReadLogs("a", 1, {}, 10), (std::vector<LogRow>{Line(2, 1), Line(3)}));
  EXPECT_EQ(*store().ReadLogs("a", 0, 1, 10), (std::vector<LogRow>{Line(2, 1)}));
  EXPECT_EQ(*store().ReadLogs("a", 0, {}, 1), (std::vector<LogRow>{Line(1)}));
}

TEST_P(StoreTest, OnlyTheNewestLogLinesOfAJobStay) {
  Batch batch;
  for (uint64_t i = 1; i <= kKeptLogLines + 5; ++i) batch.logs.push_back(Line(i));
  batch.logs.push_back(Line(1, 0, "b"));
  ASSERT_TRUE(store().Commit(batch).ok());
  const auto lines = store().ReadLogs("a", 0, {}, 2 * kKeptLogLines);
  ASSERT_EQ(lines->size(), kKeptLogLines);
  EXPECT_EQ(lines->front().sequence, 6);
  EXPECT_EQ(store().ReadLogs("b", 0, {}, 10)->size(), 1);
}

TEST_P(StoreTest, EventsAreAddedAndStayWhateverIsWrittenOfTheirJob) {
  ASSERT_TRUE(store()
                  .Commit({.jobs = {NewRows(FullJob("a", 1)), NewRows(FullJob("b", 2))},
                           .events = {Event(1), Event(1, "b")}})
                  .ok());
  // The events in the job object itself are ignored.
  jobs::Job next = FullJob("a", 1);
  JobRows rows(next);
  next.events = {Event(9).event};
  ASSERT_TRUE(store().Commit({.jobs = {rows.TakeChanges(&next)}}).ok());
  ASSERT_TRUE(store().Commit({.jobs = {rows.TakeRanks(next, {})}, .events = {Event(2)}}).ok());
  kind->Reopen();
  const Image image = Load();
  EXPECT_EQ(image.jobs[0].events, (std::vector<jobs::JobEvent>{Event(1).event, Event(2).event}));
  EXPECT_EQ(image.jobs[1].events, (std::vector<jobs::JobEvent>{Event(1, "b").event}));
}

TEST_P(StoreTest, OnlyTheNewestEventsOfAJobStay) {
  ASSERT_TRUE(store()
                  .Commit({.jobs = {NewRows(FullJob("a", 1)), NewRows(FullJob("b", 2))},
                           .events = {Event(1, "b")}})
                  .ok());
  for (uint64_t number = 1; number <= jobs::kKeptEvents + 5; ++number) {
    ASSERT_TRUE(store().Commit({.events = {Event(number)}}).ok());
  }
  kind->Reopen();
  const Image image = Load();
  ASSERT_EQ(image.jobs[0].events.size(), jobs::kKeptEvents);
  EXPECT_EQ(image.jobs[0].events.front(), Event(6).event);
  EXPECT_EQ(image.jobs[1].events.size(), 1);
}

TEST_P(StoreTest, TextsOfTheModelReplaceOnlyTexts) {
  ASSERT_TRUE(store().Commit({.jobs = {NewRows(FullJob("a", 1))}, .events = {Event(1)}}).ok());
  for (uint64_t number = 2; number <= jobs::kKeptEvents + 5; ++number) {
    EventRow text = Event(number);
    text.event.reason = jobs::kSampleReason;
    ASSERT_TRUE(store().Commit({.events = {text}}).ok());
  }
  kind->Reopen();
  const Image image = Load();
  ASSERT_EQ(image.jobs[0].events.size(), jobs::kKeptEvents + 1);
  EXPECT_EQ(image.jobs[0].events[0], Event(1).event);
  EXPECT_EQ(image.jobs[0].events[1].number, 6);
}

// The tests of all files that use this fixture.
INSTANTIATE_TEST_SUITE_P(All, StoreTest, EveryKind(), NameOfKind);

}  // namespace
}  // namespace muster::store
