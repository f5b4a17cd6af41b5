#include "coordinator/service/secrets.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <string>

#include "common/files/temp_dir.h"

namespace muster::service {
namespace {

const cluster::WorkerId kWorker = {"job", 3, 1, "incarnation"};

TEST(Secrets, EachProcessAndEachGenerationHasItsOwn) {
  const Secrets secrets;
  const std::string own = secrets.OfProcess(kWorker);
  for (const cluster::WorkerId& other : {cluster::WorkerId{"jo", 3, 1, "incarnation"},
                                         {"job", 4, 1, "incarnation"},
                                         {"job", 3, 0, "incarnation"},
                                         {"job", 3, 1, "another"}}) {
    EXPECT_NE(secrets.OfProcess(other), own);
  }
  EXPECT_NE(secrets.OfGeneration(kWorker), own);
  EXPECT_EQ(secrets.OfGeneration(kWorker), secrets.OfGeneration({"job", 3, 0, "another"}));
  EXPECT_NE(secrets.OfGeneration(kWorker), secrets.OfGeneration({"job", 4, 1, "incarnation"}));
  EXPECT_NE(Secrets().OfProcess(kWorker), own);
}

TEST(Secrets, OnlyTheProcessThatHasItsSecretIsTaken) {
  const Secrets secrets;
  for (const bool needed : {false, true}) {
    EXPECT_TRUE(secrets.Check(kWorker, secrets.OfProcess(kWorker), needed).ok());
    EXPECT_EQ(secrets.Check(kWorker, "guess", needed).code(), absl::StatusCode::kPermissionDenied);
    EXPECT_EQ(secrets.Check(kWorker, "", needed).ok(), !needed);
  }
}

TEST(Secrets, SurviveARestart) {
  const files::TempDir state;
  const auto first = Secrets::Open(state.path());
  ASSERT_TRUE(first.ok()) << first.status();
  const auto second = Secrets::Open(state.path());
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(first->OfProcess(kWorker), second->OfProcess(kWorker));
  std::ofstream(state.Path("secret")) << "short";
  EXPECT_EQ(Secrets::Open(state.path()).status().code(), absl::StatusCode::kDataLoss);
}

TEST(Secrets, TheKeyIsItsUsersAlone) {
  const files::TempDir state;
  const std::string path = state.Path("secret");
  ASSERT_TRUE(Secrets::Open(state.path()).ok());
  ASSERT_EQ(chmod(path.c_str(), 0644), 0);
  ASSERT_TRUE(Secrets::Open(state.path()).ok());
  struct stat found = {};
  ASSERT_EQ(stat(path.c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 07777, 0600u);

  ASSERT_EQ(rename(path.c_str(), state.Path("elsewhere").c_str()), 0);
  ASSERT_EQ(symlink("elsewhere", path.c_str()), 0);
  EXPECT_EQ(Secrets::Open(state.path()).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(Secrets, AKeyOfAnotherUserIsRefusedAlsoForRoot) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a file away";
  const files::TempDir state;
  ASSERT_TRUE(Secrets::Open(state.path()).ok());
  ASSERT_EQ(chown(state.Path("secret").c_str(), 65534, 65534), 0);
  const absl::Status refused = Secrets::Open(state.path()).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(refused.message().find("Remove it"), absl::string_view::npos) << refused;
}

}  // namespace
}  // namespace muster::service
