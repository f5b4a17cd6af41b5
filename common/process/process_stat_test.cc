#include "common/process/process_stat.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace muster::process {
namespace {

TEST(ProcessStat, IsReadBehindANameThatHoldsAnything) {
  const std::string text =
      "7 (a) Z (b) D 1 7 7 0 -1 4194304 90 0 0 0 1 2 0 0 20 0 3 0 123456 5 6 7\n";
  const std::optional<ProcessStat> stat = ParseProcessStat(text);
  ASSERT_TRUE(stat.has_value());
  EXPECT_TRUE(*stat == (ProcessStat{'D', 3, 123456}));
  EXPECT_FALSE(ParseProcessStat("").has_value());
  EXPECT_FALSE(ParseProcessStat("7 (a) D 1 7 7").has_value());
}

TEST(ProcessStat, AProcessHasEndedOnceAllOfItsThreadsHave) {
  EXPECT_FALSE((ProcessStat{'D', 1, 5}).Ended());
  EXPECT_FALSE((ProcessStat{'Z', 2, 5}).Ended()) << "a thread beside the first one hangs";
  EXPECT_TRUE((ProcessStat{'Z', 1, 5}).Ended());
}

TEST(ProcessStat, OfAProcessThatLivesThatHasEndedAndThatIsReaped) {
  const auto own = ReadProcessStat(getpid());
  ASSERT_TRUE(own.ok()) << own.status();
  EXPECT_FALSE(own->Ended());
  EXPECT_GT(own->start_time, 0);

  const pid_t child = fork();
  if (child == 0) _exit(0);
  siginfo_t info;
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  const auto zombie = ReadProcessStat(child);
  ASSERT_TRUE(zombie.ok()) << zombie.status();
  EXPECT_TRUE(zombie->Ended());
  EXPECT_GE(zombie->start_time, own->start_time);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_EQ(ReadProcessStat(child).status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace muster::process
