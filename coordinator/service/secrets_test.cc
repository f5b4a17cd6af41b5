#include "coordinator/service/secrets.h"

#include <gtest/gtest.h>

#include <fstream>

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

}  // namespace
}  // namespace muster::service
