// The output of the commands that show jobs and nodes, as text and in each output form.
#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <google/protobuf/util/json_util.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "client/cli/cli_fixture.h"
#include "client/cli/terminal/metrics_text.h"

namespace muster::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

TEST_F(CliTest, ListAndGetGiveTheMessagesAsJson) {
  const v1::Job job = Put("id: 'a' state: RUNNING step: 7 loss: 0.1234567890123456 version: 1");
  Put("id: 'b' state: QUEUED");
  Put("id: 'c' state: QUEUED");
  EXPECT_EQ(Muster({"list", "-o", "json"}), kDone);
  v1::ListJobsResponse jobs;
  ASSERT_TRUE(google::protobuf::util::JsonStringToMessage(out(), &jobs).ok()) << out();
  EXPECT_EQ(jobs.jobs_size(), 3);
  EXPECT_EQ(Muster({"get", "a", "-o", "json"}), kDone);
  EXPECT_THAT(out(), HasSubstr("\"state\": \"RUNNING\""));
  EXPECT_THAT(out(), HasSubstr("\"total_steps\": \"0\""));
  EXPECT_THAT(out(), Not(HasSubstr("validation_loss")));
  v1::Job parsed;
  ASSERT_TRUE(google::protobuf::util::JsonStringToMessage(out(), &parsed).ok());
  EXPECT_EQ(parsed.SerializeAsString(), job.SerializeAsString());
  EXPECT_EQ(Muster({"list"}), kDone);
  EXPECT_THAT(out(), StartsWith("ID  STATE    PRIORITY  RANKS"));
}

TEST_F(CliTest, ListTellsOfJobsThatAreTooBig) {
  Put("id: 'a' state: QUEUED warnings: 'needs 4 slots; 2 are offered'");
  Put("id: 'b' state: QUEUED");
  EXPECT_EQ(Muster({"list"}), kDone);
  EXPECT_EQ(err(), "warning: a needs 4 slots; 2 are offered\n");
}

TEST_F(CliTest, ListGivesThoseInTheStatesAskedForUpToTheLimit) {
  Put("id: 'a' state: RUNNING");
  Put("id: 'b' state: FAILED spec { priority: 7 }");
  Put("id: 'c' state: QUEUED");
  Put("id: 'd' state: FAILED");
  EXPECT_EQ(Muster({"list", "--state", "failed", "--state", "RUNNING"}), kDone);
  EXPECT_THAT(out(), AllOf(HasSubstr("\na "), HasSubstr("\nb   FAILED   7"), HasSubstr("\nd "),
                           Not(HasSubstr("\nc "))));
  EXPECT_THAT(err(), IsEmpty());
  EXPECT_EQ(Muster({"list", "--state", "FAILED", "--limit", "1"}), kDone);
  EXPECT_THAT(out(), AllOf(HasSubstr("\nb "), Not(HasSubstr("\nd "))));
  EXPECT_EQ(err(), "there are more: continue with --page-token b\n");
  EXPECT_EQ(Muster({"list", "--state", "FAILED", "--limit", "1", "--page-token", "b"}), kDone);
  EXPECT_THAT(out(), AllOf(HasSubstr("\nd "), Not(HasSubstr("\nb "))));
  EXPECT_THAT(err(), IsEmpty());
  EXPECT_EQ(Muster({"list", "--limit", "3", "-o", "json"}), kDone);
  v1::ListJobsResponse jobs;
  ASSERT_TRUE(google::protobuf::util::JsonStringToMessage(out(), &jobs).ok()) << out();
  EXPECT_EQ(jobs.jobs_size(), 3);
  EXPECT_EQ(jobs.next_page_token(), "c");
  EXPECT_EQ(Muster({"list", "--state", "STOPPING"}), kDone);
  EXPECT_THAT(out(), IsEmpty());
  EXPECT_EQ(err(), "no jobs\n");
}

TEST_F(CliTest, RanksGivesTheRanksOfAJob) {
  Put(R"(id: 'a' state: RUNNING generation: 2 world_size: 2
         ranks { rank: 0 node: 'n1' pid: 77 device: 'cpu' state: ATTACHED step: 5
                 progress: 'step 5: forward' collectives_begun: 40 collectives_ended: 39
                 last_collective: "all_reduce 'bucket 2' step 6"
                 memory { moments { bytes: 1048576 peak_bytes: 2097152 } } }
         ranks { rank: 1 node: 'n2' pid: 78 device: 'cpu' state: DETACHED step: 4
                 joined_since_step: 3 progress: 'p' }
         active_ranks: 1 joined_ranks: 1)");
  EXPECT_EQ(Muster({"ranks", "a"}), kDone);
  EXPECT_EQ(out(),
            "RANK  NODE  PID  DEVICE  STATE     STEP  SEEN  PROGRESS\n"
            "0     n1    77   cpu     ATTACHED  5     -     step 5: forward\n"
            "1     n2    78   cpu     DETACHED  4     -     joined since step 3; p\n"
            "\n"
            "collectives:\n"
            "RANK  BEGUN  ENDED  NEWEST\n"
            "0     40     39     all_reduce 'bucket 2' step 6\n"
            "\n"
            "memory in MiB, now/peak:\n"
            "RANK  TOTAL    PARAMETERS  GATHERED  GRADIENTS  MOMENTS  BUCKETS  ACTIVATIONS  OTHER  "
            "  RESIDENT\n"
            "0     0.0/0.0  0.0/0.0     0.0/0.0   0.0/0.0    1.0/2.0  0.0/0.0  0.0/0.0      "
            "0.0/0.0  0.0\n");
  EXPECT_EQ(Muster({"ranks", "a", "-o", "yaml"}), kDone);
  EXPECT_THAT(out(), StartsWith("job_id: a\nstate: RUNNING\ngeneration: \"2\"\nworld_size: 2\n"
                                "active_ranks: 1\njoined_ranks: 1\nranks:\n"
                                "  - rank: 0\n    node: n1\n"));
  Put("id: 'b' state: QUEUED state_reason: 'needs 2 slots'");
  EXPECT_EQ(Muster({"ranks", "b"}), kDone);
  EXPECT_THAT(out(), IsEmpty());
  EXPECT_EQ(err(), "job b is QUEUED and has no ranks yet: needs 2 slots\n");
}

TEST_F(CliTest, NodesGivesTheNodes) {
  EXPECT_EQ(Muster({"nodes"}), kDone);
  EXPECT_THAT(out(), IsEmpty());
  EXPECT_THAT(err(), StartsWith("no nodes"));
  v1::ListNodesResponse nodes;
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(R"(
    nodes { name: 'n1' state: ATTACHED slots_total: 4 slots_free: 1 version: '1.0'
            jobs { job_id: 'a' ranks: [0, 1] } jobs { job_id: 'b' ranks: 3 } }
    nodes { name: 'n2' state: DETACHED slots_total: 2 })",
                                                            &nodes));
  cluster_.Put(nodes);
  EXPECT_EQ(Muster({"nodes"}), kDone);
  EXPECT_EQ(out(),
            "NODE  STATE     SLOTS  FREE  SEEN  VERSION  JOBS\n"
            "n1    ATTACHED  4      1     -     1.0      a (2 ranks), b (1 rank)\n"
            "n2    DETACHED  2      0     -     -        -\n");
  EXPECT_EQ(Muster({"nodes", "-o", "json"}), kDone);
  v1::ListNodesResponse parsed;
  ASSERT_TRUE(google::protobuf::util::JsonStringToMessage(out(), &parsed).ok()) << out();
  EXPECT_EQ(parsed.SerializeAsString(), nodes.SerializeAsString());
}

TEST_F(CliTest, NodesShowsGpusWhereThereAreSome) {
  v1::ListNodesResponse nodes;
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(R"(
    nodes { name: 'n1' state: ATTACHED slots_total: 4 slots_free: 1 version: '1.0'
            gpus { name: 'NVIDIA H100' uuid: 'GPU-a' memory_bytes: 85899345920 free: true }
            gpus { index: 1 name: 'NVIDIA H100' uuid: 'GPU-b' memory_bytes: 85899345920 } }
    nodes { name: 'n2' state: ATTACHED slots_total: 2 version: '1.0' })",
                                                            &nodes));
  cluster_.Put(nodes);
  EXPECT_EQ(Muster({"nodes"}), kDone);
  EXPECT_EQ(out(),
            "NODE  STATE     SLOTS  FREE  GPUS  FREE GPUS  GPU                     SEEN  VERSION  "
            "JOBS\n"
            "n1    ATTACHED  4      1     2     1          NVIDIA H100 (80.0 GiB)  -     1.0      "
            "-\n"
            "n2    ATTACHED  2      0     0     0          -                       -     1.0      "
            "-\n");
}

TEST_F(CliTest, NodesTellsOfAStoreThatCannotBeWritten) {
  v1::ListNodesResponse nodes;
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(
      "nodes { name: 'n1' } store_trouble { message: 'disk is full' since { seconds: 5 } }",
      &nodes));
  cluster_.Put(nodes);
  EXPECT_EQ(Muster({"nodes"}), kDone);
  EXPECT_THAT(err(), HasSubstr("warning: the coordinator's store could last be written "));
  EXPECT_THAT(err(), HasSubstr(" ago: disk is full; running jobs continue, changes are refused\n"));
}

TEST_F(CliTest, EveryDocumentComesAsYamlToo) {
  Put("id: 'a' state: SUCCEEDED version: 1");
  v1::LogLine line;
  line.set_sequence(1);
  line.set_text("yes");
  service_.AddLog("a", line);
  const std::pair<std::vector<std::string>, std::string> cases[] = {
      {{"get", "a"}, "id: a\nstate: SUCCEEDED\n"},
      {{"list"}, "jobs:\n  - id: a\n"},
      {{"wait", "a"}, "id: a\nstate: SUCCEEDED\n"},
      {{"watch", "a"}, "---\nid: a\n"},
      {{"logs", "a"}, "---\nsequence: \"1\"\ngeneration: \"0\"\nrank: 0\ntext: \"yes\"\n"},
      {{"submit", folder_.Path("job.yaml"), "--id", "b"}, "id: b\nstate: QUEUED\n"},
      {{"stop", "b"}, "id: b\nstate: CANCELLED\n"},
      {{"delete", "b"}, "job_id: b\n"},
      {{"nodes"}, "nodes: []\n"},
      {{"validate", folder_.Path("job.yaml")}, "problems: []\n"},
      {{"data", "pack", "--tokenizer", "bytes", "--out", folder_.Path("t.bin"),
        folder_.Path("job.yaml")},
       "files:\n  - path: "},
  };
  for (const auto& [arguments, start] : cases) {
    std::vector<std::string> command = arguments;
    command.insert(command.end(), {"-o", "yaml"});
    EXPECT_EQ(Muster(command), kDone) << arguments[0] << ": " << err();
    EXPECT_THAT(out(), StartsWith(start)) << arguments[0];
  }
}

TEST_F(CliTest, StreamsGiveOneObjectPerLine) {
  Put("id: 'a' state: SUCCEEDED");
  for (int i = 1; i <= 2; ++i) {
    v1::LogLine line;
    line.set_sequence(i);
    line.set_generation(1);
    line.set_rank(i - 1);
    line.set_text("hello");
    service_.AddLog("a", line);
    v1::StepMetrics step;
    step.set_step(i);
    step.set_loss(0.5);
    service_.AddStep("a", step);
  }
  EXPECT_EQ(Muster({"logs", "a", "-o", "json"}), kDone);
  EXPECT_EQ(out(),
            "{\"sequence\":\"1\",\"generation\":\"1\",\"rank\":0,\"text\":\"hello\"}\n"
            "{\"sequence\":\"2\",\"generation\":\"1\",\"rank\":1,\"text\":\"hello\"}\n");
  EXPECT_EQ(Muster({"logs", "a", "--rank", "1"}), kDone);
  EXPECT_EQ(out(), "[1.1] hello\n");
  EXPECT_EQ(Muster({"metrics", "a", "-o", "csv"}), kDone);
  EXPECT_THAT(out(), StartsWith("step,loss,learning_rate,grad_norm,samples,seconds,generation,"));
  EXPECT_THAT(out(), HasSubstr("\r\n1,0.5,,,0,0.000000000,0,"));
  EXPECT_THAT(out(), HasSubstr("\r\n2,0.5,,,0,0.000000000,0,"));
  EXPECT_EQ(Muster({"metrics", "a"}), kDone);
  EXPECT_THAT(out(), StartsWith("STEP "));
  EXPECT_EQ(Muster({"metrics", "a", "-o", "json"}), kDone);
  EXPECT_THAT(out(), StartsWith("{\"step\":\"1\","));
  EXPECT_THAT(out(), HasSubstr("\"loss\":0.5"));
}

TEST_F(CliTest, MetricsOfAJobWithoutStepsAreAHeader) {
  Put("id: 'a' state: QUEUED");
  EXPECT_EQ(Muster({"metrics", "a"}), kDone);
  EXPECT_EQ(out(), MetricsHeader());
  EXPECT_EQ(Muster({"metrics", "a", "-o", "csv"}), kDone);
  EXPECT_EQ(out(), MetricsCsvHeader());
  EXPECT_EQ(Muster({"metrics", "nobody", "-o", "csv"}), kNotFound);
  EXPECT_EQ(out(), "");
}

}  // namespace
}  // namespace muster::cli
