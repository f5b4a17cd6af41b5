#include "client/cli/same_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "common/files/temp_dir.h"

namespace muster::cli {
namespace {

using ::testing::ElementsAre;

TEST(Continuation, TheNewestWholeCheckpointIsThatOfTheLatestGeneration) {
  const files::TempDir folder;
  EXPECT_EQ(NewestCheckpoint(folder.Path("missing")), "");
  EXPECT_EQ(NewestCheckpoint(folder.path()), "");
  for (const char* name : {"step-9-g1", "step-10-g1", "step-5-g2", "step-90-g2.tmp", "step-7-g2"}) {
    std::filesystem::create_directory(folder.Path(name));
  }
  EXPECT_EQ(NewestCheckpoint(folder.path()), folder.Path("step-7-g2"));
}

TEST(Continuation, AShellReadsTheLineAsTheSameWords) {
  EXPECT_EQ(ShellLine({"bin/muster", "run", "--set=a.b=1e-4", "it's a job.yaml", "", "$HOME"}),
            "bin/muster run --set=a.b=1e-4 'it'\\''s a job.yaml' '' '$HOME'");
}

TEST(Continuation, OnlyTheStartIsReplaced) {
  const std::vector<std::string> words = {"muster", "run",          "--new", "job.yaml",
                                          "--set",  "start.what=weights", "--set", "seed=2",
                                          "--set=start={checkpoint: /old}"};
  EXPECT_THAT(ContinueFrom(words, "/c/step-7-g2"),
              ElementsAre("muster", "run", "job.yaml", "--set", "seed=2", "--set",
                          "start={checkpoint: /c/step-7-g2, what: everything}"));
  EXPECT_THAT(ContinueFrom(words, ""),
              ElementsAre("muster", "run", "job.yaml", "--set", "start.what=weights", "--set",
                          "seed=2", "--set=start={checkpoint: /old}"));
  EXPECT_EQ(ContinueFrom({}, "/a, \"b\"").back(),
            "start={checkpoint: \"/a, \\\"b\\\"\", what: everything}");
}

}  // namespace
}  // namespace muster::cli
