#include "client/cli/terminal/job_text.h"

#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>

namespace muster::cli {
namespace {

const absl::Time kNow = absl::FromUnixSeconds(1700000000);

v1::Job Parse(const std::string& text) {
  v1::Job job;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &job)) << text;
  return job;
}

TEST(HumanDuration, IsWhatPeopleSay) {
  const std::pair<absl::Duration, const char*> cases[] = {
      {absl::Seconds(-5), "0.0s"},        {absl::ZeroDuration(), "0.0s"},
      {absl::Milliseconds(1540), "1.5s"}, {absl::Seconds(9.9), "9.9s"},
      {absl::Seconds(10), "10s"},         {absl::Seconds(59.9), "59s"},
      {absl::Seconds(60), "1m00s"},       {absl::Seconds(3599), "59m59s"},
      {absl::Seconds(3600), "1h00m"},     {absl::Hours(99), "99h00m"},
      {absl::Hours(100), "4d"},
  };
  for (const auto& [duration, text] : cases) EXPECT_EQ(HumanDuration(duration), text);
}

TEST(Ago, IsADashForATimeThatHasNotCome) {
  google::protobuf::Timestamp time;
  EXPECT_EQ(Ago(time, kNow), "-");
  time.set_seconds(1700000000 - 90);
  EXPECT_EQ(Ago(time, kNow), "1m30s ago");
  time.set_seconds(1700000000 + 90);  // another machine's clock
  EXPECT_EQ(Ago(time, kNow), "0.0s ago");
}

TEST(JobTable, HasALinePerJob) {
  const v1::Job running =
      Parse(R"(id: 'a' state: RUNNING world_size: 2 stage: 'fit' step: 7 total_steps: 9 loss: 0.25
      validation_loss: 0.5 restarts: 1 reason: 'SAVE_FAILED'
      save_failure { count: 3 } warnings: 'w' spec { priority: -3 } create_time { seconds: 1699999990 })");
  EXPECT_EQ(
      JobTable({running, Parse("id: 'b' state: QUEUED world_size: 4 total_steps: 5")}, kNow),
      "ID  STATE    PRIORITY  RANKS  STAGE  STEP  LOSS    VALIDATION  RESTARTS  CREATED  NOTE\n"
      "a   RUNNING  -3        2      fit    7/9   0.2500  0.5000      1         10s ago  "
      "SAVE_FAILED; 3 times; w\n"
      "b   QUEUED   0         4      -      0/5   -       -           0         -\n");
}

TEST(JobDetails, TellsAllThereIs) {
  const v1::Job job = Parse(R"(
    id: 'a' state: FAILED state_reason: 'why' spec { name: 'n' priority: 2 } step: 7 total_steps: 9 loss: 0.25
    validation_loss: 0.5 validation_step: 6 world_size: 1 generation: 2 restarts: 1 exported_path: '/w'
    create_time { seconds: 1699990000 } start_time { seconds: 1699990001 } end_time { seconds: 1699990002 }
    ranks { rank: 0 node: 'n1' pid: 7 device: 'cpu' state: EXITED step: 7 last_seen { seconds: 1699999940 } progress: 'p' }
    checkpoints { step: 5 generation: 1 path: '/c/5' create_time { seconds: 1699999940 } bad_reason: 'hash' best: true }
    checkpoints { step: 6 generation: 2 path: '/c/6' create_time { seconds: 1699999940 } bytes: 806000000 stall_seconds: 0.08 write_seconds: 2.5 best: true }
    reason: 'FINAL_SAVE_FAILED' warnings: 'w'
    save_failure { step: 7 message: 'disk full' time { seconds: 1699999940 } count: 2 }
    events { time { seconds: 1699999940 } generation: 2 step: 7 reason: 'SAVE_FAILED' message: 'm' }
    failure { rank: 0 node: 'n1' generation: 1 step: 5 reason: 'r' collectives: ['rank 0: a', 'rank 1: b'] })");
  EXPECT_EQ(JobDetails(job, kNow),
            "id               a\n"
            "name             n\n"
            "state            FAILED: why\n"
            "reason           FINAL_SAVE_FAILED\n"
            "warning          w\n"
            "failed saves     2, the newest at step 7 (1m00s ago): disk full\n"
            "priority         2\n"
            "step             7/9\n"
            "loss             0.2500\n"
            "validation loss  0.5000 after step 6\n"
            "ranks            1\n"
            "generation       2, restarts: 1\n"
            "created          2023-11-14 19:26:40 UTC\n"
            "started          2023-11-14 19:26:41 UTC\n"
            "ended            2023-11-14 19:26:42 UTC\n"
            "weights          /w\n"
            "\n"
            "RANK  NODE  PID  DEVICE  STATE   STEP  SEEN       PROGRESS\n"
            "0     n1    7    cpu     EXITED  7     1m00s ago  p\n"
            "\n"
            "CHECKPOINT  GENERATION  CREATED    SIZE       WRITTEN IN  STALL   PATH\n"
            "step 5      1           1m00s ago                                 /c/5 BAD: hash\n"
            "step 6      2           1m00s ago  768.7 MiB  2.50 s      0.08 s  /c/6 BEST\n"
            "\n"
            "EVENT        WHEN       GENERATION  STEP  MESSAGE\n"
            "SAVE_FAILED  1m00s ago  2           7     m\n"
            "\n"
            "last failure: rank 0 on n1, generation 1, step 5: r\n"
            "  last collectives:\n"
            "    rank 0: a\n"
            "    rank 1: b\n");
}

TEST(NewEvents, AreThoseAfterTheNewestKnownOne) {
  const v1::Job before = Parse("events { step: 1 message: 'a' } events { step: 1 message: 'b' }");
  const v1::Job same = before;
  EXPECT_TRUE(NewEvents(before, same).empty());
  // Old events are dropped, new ones are added.
  const auto events = NewEvents(
      before, Parse("events { step: 1 message: 'b' } events { step: 2 reason: 'R' message: 'c' }"));
  ASSERT_EQ(events.size(), 1);
  EXPECT_EQ(EventLine(events[0]), "step 2: R: c");
  EXPECT_EQ(NewEvents(Parse("id: 'x'"), before).size(), 2);
  // None of the known events is left.
  EXPECT_EQ(NewEvents(before, Parse("events { step: 9 }")).size(), 1);
}

TEST(EventTable, HasTheNewestFive) {
  v1::Job job;
  EXPECT_EQ(EventTable(job, kNow), "");
  for (int i = 1; i <= 7; ++i) job.add_events()->set_message(std::to_string(i));
  const std::string table = EventTable(job, kNow);
  EXPECT_EQ(std::count(table.begin(), table.end(), '\n'), 6);
  EXPECT_EQ(table.find(" 2\n"), std::string::npos);
  EXPECT_NE(table.find(" 3\n"), std::string::npos);
}

TEST(MemoryTable, HasWhatIsInUseAndItsPeakByPurpose) {
  EXPECT_EQ(MemoryTable(Parse("ranks { rank: 0 state: STARTING }")), "");
  EXPECT_EQ(MemoryTable(Parse(R"(
              ranks { rank: 0 memory { total { bytes: 1048576 peak_bytes: 2097152 } parameters { bytes: 100000 peak_bytes: 100000 } gathered { peak_bytes: 2097152 }
                      gradients { peak_bytes: 3145728 } moments { bytes: 4194304 peak_bytes: 4194304 }
                      buckets { bytes: 5242880 peak_bytes: 6291456 } activations { peak_bytes: 7340032 }
                      other { bytes: 8 peak_bytes: 1073741824 } resident_bytes: 200000000 } }
              ranks { rank: 1 }
              ranks { rank: 12 memory {} })")),
            "memory in MiB, now/peak:\n"
            "RANK  TOTAL    PARAMETERS  GATHERED  GRADIENTS  MOMENTS  BUCKETS  ACTIVATIONS  OTHER  "
            "     RESIDENT\n"
            "0     1.0/2.0  0.1/0.1     0.0/2.0   0.0/3.0    4.0/4.0  5.0/6.0  0.0/7.0      "
            "0.0/1024.0  190.7\n"
            "12    0.0/0.0  0.0/0.0     0.0/0.0   0.0/0.0    0.0/0.0  0.0/0.0  0.0/0.0      "
            "0.0/0.0     0.0\n");
  const std::string on_gpu = MemoryTable(
      Parse("ranks { rank: 0 memory { resident_bytes: 1048576 reserved_bytes: 3145728 } }"));
  EXPECT_NE(on_gpu.find("RESIDENT  RESERVED\n"), std::string::npos) << on_gpu;
  EXPECT_NE(on_gpu.find("1.0       3.0\n"), std::string::npos) << on_gpu;
}

TEST(JobSummary, SaysHowItEnded) {
  EXPECT_EQ(JobSummary(Parse("id: 'a' state: CANCELLED step: 0 total_steps: 9")),
            "job a CANCELLED: 0/9 steps");
  EXPECT_EQ(JobSummary(Parse(
                R"(id: 'a' state: SUCCEEDED step: 9 total_steps: 9 loss: 0.25 validation_loss: 0.5
                                start_time { seconds: 10 } end_time { seconds: 100 } restarts: 2
                                exported_path: '/w')")),
            "job a SUCCEEDED: 9/9 steps, loss 0.2500, validation loss 0.5000, 1m30s, restarts 2, "
            "weights in /w");
}

}  // namespace
}  // namespace muster::cli
