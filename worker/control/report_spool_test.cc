#include "worker/control/report_spool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>

#include "common/spool/spool.h"

namespace muster::control {
namespace {

using ::testing::ElementsAre;

v1::WorkerIdentity Who() {
  v1::WorkerIdentity worker;
  worker.set_job_id("job");
  return worker;
}

std::string PathOf(const std::string& name) {
  return std::string(getenv("TEST_TMPDIR")) + "/" + name;
}

TEST(ReportSpool, KeepsWhatIsAddedWithWhoseItIs) {
  ReportSpool spool({.path = PathOf("kept")}, Who());
  EXPECT_EQ(spool.through(), 0);
  ASSERT_TRUE(spool.Add({"five", "six"}, 6).ok());
  ASSERT_TRUE(spool.Add({"seven"}, 7).ok());
  ASSERT_TRUE(spool.Sync().ok());
  EXPECT_EQ(spool.through(), 7);
  const auto read = ReadSpool(PathOf("kept"));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->worker, Who().SerializeAsString());
  EXPECT_THAT(read->reports, ElementsAre("five", "six", "seven"));
}

TEST(ReportSpool, AfterItsRemovalTheNextReportsMakeANewFile) {
  ReportSpool spool({.path = PathOf("removed")}, Who());
  ASSERT_TRUE(spool.Add({"one"}, 1).ok());
  spool.Remove();
  EXPECT_EQ(spool.through(), 0);
  EXPECT_EQ(access(PathOf("removed").c_str(), F_OK), -1);
  ASSERT_TRUE(spool.Add({"two"}, 2).ok());
  EXPECT_THAT(ReadSpool(PathOf("removed"))->reports, ElementsAre("two"));
}

TEST(ReportSpool, AfterAResetTheNextReportsReplaceTheFile) {
  ReportSpool spool({.path = PathOf("reset")}, Who());
  ASSERT_TRUE(spool.Add({"one", "two"}, 2).ok());
  spool.Reset();
  EXPECT_EQ(spool.through(), 0);
  EXPECT_THAT(ReadSpool(PathOf("reset"))->reports, ElementsAre("one", "two"))
      << "until then it is there";
  ASSERT_TRUE(spool.Add({"thin"}, 2).ok());
  EXPECT_THAT(ReadSpool(PathOf("reset"))->reports, ElementsAre("thin"));
}

TEST(ReportSpool, AFolderThatIsNotThereIsAnErrorAndKeepsNothing) {
  ReportSpool spool({.path = PathOf("no/such/folder")}, Who());
  EXPECT_EQ(spool.Add({"one"}, 1).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(spool.through(), 0);
}

TEST(ReportSpool, WithoutAFileItIsNotEnabled) {
  EXPECT_FALSE(ReportSpool({}, Who()).enabled());
  EXPECT_TRUE(ReportSpool({.path = "/x"}, Who()).enabled());
}

}  // namespace
}  // namespace muster::control
