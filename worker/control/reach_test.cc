#include "worker/control/reach.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "worker/train/ranks/failure.h"

namespace muster::control {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr Patience kNone{.tell = absl::ZeroDuration(), .end = absl::ZeroDuration()};
constexpr Patience kTells{.tell = absl::ZeroDuration(), .end = absl::Milliseconds(1)};

// A port of this machine on which nothing listens.
uint16_t ClosedPort() { return (*ReachListener::Open("127.0.0.1"))->port(); }

TEST(Reach, APeerThatAnswersIsNoTrouble) {
  const auto listener = ReachListener::Open("127.0.0.1");
  ASSERT_TRUE(listener.ok()) << listener.status();
  std::vector<std::string> told;
  EXPECT_TRUE(
      AwaitReachable({1, "127.0.0.1", (*listener)->port()}, [&](const std::string& trouble) {
        told.push_back(trouble);
      }).ok());
  EXPECT_THAT(told, IsEmpty());
}

TEST(Reach, AnAddressThatThisMachineDoesNotHaveIsNamedWithTheRemedy) {
  const absl::Status status = ReachListener::Open("192.0.2.1").status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_EQ(train::CauseOf(status), train::Cause::kNodeFault);
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("192.0.2.1"), HasSubstr("--host")));
  EXPECT_TRUE(absl::IsInvalidArgument(ReachListener::Open("no address").status()));
}

TEST(Reach, ALoopbackAddressOfAnotherMachineIsToldWithTheRemedyAndNoRestartHelps) {
  const uint16_t port = ClosedPort();
  std::vector<std::string> told;
  const absl::Status status =
      AwaitReachable({3, "127.0.0.1", port},
                     [&](const std::string& trouble) { told.push_back(trouble); }, kTells);
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_EQ(train::CauseOf(status), train::Cause::kNone) << "the address is another node's";
  ASSERT_FALSE(told.empty());
  EXPECT_THAT(told[0], AllOf(HasSubstr("rank 3 at 127.0.0.1:" + std::to_string(port)),
                             HasSubstr("Connection refused"),
                             HasSubstr("muster-agent --host ADDRESS")));
}

TEST(Reach, AnotherAddressMayAnswerAtTheNextStart) {
  // TEST-NET-1: no machine has it.
  const absl::Status status =
      AwaitReachable({1, "192.0.2.1", 9}, [](const std::string&) {}, kNone);
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("192.0.2.1:9"));
}

TEST(Reach, AddressesOfTwoKindsAreNamed) {
  EXPECT_TRUE(CheckFamilies(0, "10.0.0.1", {1, "10.0.0.2", 1}).ok());
  EXPECT_TRUE(CheckFamilies(0, "::1", {1, "fd00::2", 1}).ok());
  const absl::Status mixed = CheckFamilies(0, "10.0.0.1", {1, "fd00::2", 1});
  EXPECT_TRUE(absl::IsFailedPrecondition(mixed)) << mixed;
  EXPECT_THAT(std::string(mixed.message()),
              AllOf(HasSubstr("10.0.0.1"), HasSubstr("fd00::2"), HasSubstr("--host")));
}

TEST(Reach, TooFewOpenFilesAreKnownBeforeAnythingIsConnected) {
  EXPECT_TRUE(CheckOpenFiles(0, 2, 3).ok());
  const absl::Status status = CheckOpenFiles(0, int64_t{1} << 40, 3);
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_EQ(train::CauseOf(status), train::Cause::kNodeFault);
  EXPECT_THAT(std::string(status.message()), HasSubstr("ulimit -n"));
}

TEST(Reach, AnErrorOfALibraryThatFoundNoDescriptorSaysWhatToDo) {
  const absl::Status explained =
      ExplainOpenFiles(absl::UnavailableError("[enforce fail at x] socket: Too many open files"));
  EXPECT_TRUE(absl::IsFailedPrecondition(explained));
  EXPECT_EQ(train::CauseOf(explained), train::Cause::kNodeFault);
  EXPECT_THAT(std::string(explained.message()), HasSubstr("LimitNOFILE"));
  EXPECT_TRUE(absl::IsUnavailable(ExplainOpenFiles(absl::UnavailableError("gone"))));
}

}  // namespace
}  // namespace muster::control
