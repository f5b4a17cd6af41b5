#include "worker/agent/spool_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "common/spool/spool.h"
#include "worker/agent/wire.h"

namespace muster::agent {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

const WorkerId kWorker = {.job = "a", .generation = 2, .rank = 1, .incarnation = "1b4e-28"};

std::string PathOf(const std::string& name) {
  return std::string(getenv("TEST_TMPDIR")) + "/" + name;
}

// Writes reports as a worker does, with the agent's settings.
void Spool(const SpoolFolder& folder, const WorkerId& worker,
           const std::vector<std::string>& reports) {
  const auto environment = folder.Environment(worker, 1000);
  ASSERT_TRUE(environment.contains(kSpoolVariable));
  ASSERT_TRUE(WriteSpool(environment.at(kSpoolVariable),
                         {.worker = ToWire(worker).SerializeAsString(), .reports = reports})
                  .ok());
}

TEST(SpoolFolder, WhatAWorkerLeftIsFoundAlsoByTheNextAgent) {
  SpoolFolder folder(PathOf("found"));
  ASSERT_TRUE(folder.Open().ok());
  EXPECT_FALSE(folder.Has(kWorker));
  Spool(folder, kWorker, {"one", "two"});
  SpoolFolder next(PathOf("found"));
  ASSERT_TRUE(next.Open().ok());
  EXPECT_THAT(next.List(), ElementsAre(kWorker));
  EXPECT_TRUE(next.Has(kWorker));
  EXPECT_THAT(*next.Read(kWorker), ElementsAre("one", "two"));
  next.Remove(kWorker);
  EXPECT_FALSE(next.Has(kWorker));
  EXPECT_THAT(next.List(), IsEmpty());
}

TEST(SpoolFolder, AWorkerIsToldItsFileAndItsLimit) {
  SpoolFolder folder(PathOf("told"));
  ASSERT_TRUE(folder.Open().ok());
  EXPECT_THAT(folder.Environment(kWorker, 5),
              ElementsAre(Pair(kSpoolVariable, PathOf("told/1b4e-28.reports")),
                          Pair(kSpoolLimitVariable, "5")));
}

TEST(SpoolFolder, WhatIsNoFileOfReportsIsPutAsideAndOtherFilesStay) {
  SpoolFolder folder(PathOf("odd"));
  ASSERT_TRUE(folder.Open().ok());
  std::ofstream(PathOf("odd/x.reports")) << "nonsense";
  std::ofstream(PathOf("odd/notes.txt")) << "mine";
  Spool(folder, kWorker, {});
  EXPECT_THAT(folder.List(), IsEmpty());
  EXPECT_FALSE(std::filesystem::exists(PathOf("odd/x.reports")));
  EXPECT_TRUE(std::filesystem::exists(PathOf("odd/x.reports.bad")));
  EXPECT_FALSE(folder.Has(kWorker)) << "there was nothing in it";
  EXPECT_TRUE(std::filesystem::exists(PathOf("odd/notes.txt")));
}

TEST(SpoolFolder, WhatCannotBeReadNowIsKept) {
  SpoolFolder folder(PathOf("unreadable"));
  ASSERT_TRUE(folder.Open().ok());
  // A directory cannot be read as a file, like a file on a disk that reports EIO.
  std::filesystem::create_directory(PathOf("unreadable/1b4e-28.reports"));
  EXPECT_THAT(folder.List(), IsEmpty());
  EXPECT_TRUE(folder.Has(kWorker));
  EXPECT_FALSE(folder.Read(kWorker).ok());
  EXPECT_TRUE(std::filesystem::exists(PathOf("unreadable/1b4e-28.reports")));
}

TEST(SpoolFolder, WhatAKilledWorkerLeftHalfWrittenIsRemovedAtTheStart) {
  std::filesystem::create_directory(PathOf("half"));
  std::ofstream(PathOf("half/1b4e-28.reports.tmp")) << "half";
  SpoolFolder folder(PathOf("half"));
  ASSERT_TRUE(folder.Open().ok());
  EXPECT_FALSE(std::filesystem::exists(PathOf("half/1b4e-28.reports.tmp")));
}

TEST(SpoolFolder, NamesThatWouldLeaveTheFolderGetNoFile) {
  SpoolFolder folder(PathOf("names"));
  ASSERT_TRUE(folder.Open().ok());
  for (const char* incarnation : {"", "..", "../x", "a/b"}) {
    EXPECT_THAT(folder.Environment({.incarnation = incarnation}, 1), IsEmpty()) << incarnation;
  }
}

TEST(SpoolFolder, WithoutAFolderThereIsNothing) {
  SpoolFolder none("");
  EXPECT_TRUE(none.Open().ok());
  SpoolFolder broken("/proc/no/such");
  EXPECT_FALSE(broken.Open().ok());
  for (const SpoolFolder* folder : {&none, &broken}) {
    EXPECT_THAT(folder->Environment(kWorker, 1), IsEmpty());
    EXPECT_THAT(folder->List(), IsEmpty());
    EXPECT_FALSE(folder->Has(kWorker));
    folder->Remove(kWorker);
  }
}

}  // namespace
}  // namespace muster::agent
