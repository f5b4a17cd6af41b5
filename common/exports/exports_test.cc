#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "common/exports/signature.h"
#include "common/exports/target.h"
#include "common/files/files.h"
#include "common/files/temp_dir.h"
#include "common/status/status.h"

namespace muster::exports {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kUuid[] = "0a1b2c3d-4e5f-4a6b-8c9d-0e1f2a3b4c5d";

struct ExportsTest : testing::Test {
  void Write(const std::string& name, const std::string& contents) {
    ASSERT_TRUE(files::WriteAtomically(dir_.Path(name), contents).ok());
  }
  void WriteExport(const std::string& name, const safetensors::Metadata& metadata) {
    const auto plan = safetensors::Plan({}, metadata);
    ASSERT_TRUE(plan.ok()) << plan.status();
    Write(name, plan->prefix);
  }
  bool Exists(const std::string& name) { return std::filesystem::exists(dir_.Path(name)); }
  files::TempDir dir_;
};

TEST_F(ExportsTest, WhatIsNotThereMayBeWritten) {
  EXPECT_TRUE(CheckTarget(dir_.Path("w"), "n", false).ok());
  EXPECT_TRUE(CheckTarget(dir_.Path("no/such/folder/w"), "n", false).ok());
}

TEST_F(ExportsTest, AnExportOfAJobOfTheSameNameIsReplaced) {
  WriteExport("w", MetadataOf("n", "n-1"));
  EXPECT_TRUE(CheckTarget(dir_.Path("w"), "n", false).ok());
}

TEST_F(ExportsTest, AnythingElseIsReplacedOnlyWhereTheJobSaysSo) {
  WriteExport("other", MetadataOf("m", "m-1"));
  WriteExport("plain", {{"format", "pt"}});
  Write("text", "no safetensors file");
  Write("empty", "");
  const std::pair<const char*, const char*> cases[] = {
      {"other", "was written by the job 'm', and this one is 'n'"},
      {"plain", "does not say that the job 'n' wrote it"},
      {"text", "is not an export of the job 'n'"},
      {"empty", "is not an export of the job 'n'"}};
  for (const auto& [name, what] : cases) {
    const absl::Status refused = CheckTarget(dir_.Path(name), "n", false);
    EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << name << ": " << refused;
    EXPECT_THAT(Message(refused), HasSubstr(what));
    EXPECT_THAT(Message(refused), HasSubstr(dir_.Path(name)));
    EXPECT_THAT(Message(refused), HasSubstr("overwrite: true"));
    EXPECT_TRUE(CheckTarget(dir_.Path(name), "n", true).ok()) << name;
  }
}

TEST_F(ExportsTest, WhatIsNoRegularFileIsNeverReplaced) {
  ASSERT_EQ(mkfifo(dir_.Path("pipe").c_str(), 0600), 0);
  WriteExport("own", MetadataOf("n", "n-1"));
  ASSERT_EQ(symlink("own", dir_.Path("link").c_str()), 0);
  ASSERT_EQ(symlink("nothing", dir_.Path("broken").c_str()), 0);
  for (const std::string& path : {dir_.path(), dir_.Path("pipe"), dir_.Path("link"),
                                  dir_.Path("broken"), std::string("/dev/null")}) {
    for (const bool overwrite : {false, true}) {
      EXPECT_TRUE(absl::IsFailedPrecondition(CheckTarget(path, "n", overwrite))) << path;
      EXPECT_TRUE(absl::IsFailedPrecondition(CheckOutput(path, "n", overwrite))) << path;
    }
  }
  EXPECT_THAT(Message(CheckTarget(dir_.Path("link"), "n", true)), HasSubstr("is a symbolic link"));
}

TEST_F(ExportsTest, WhatTheJobReadsIsNeverReplacedByWhateverName) {
  Write("data", "x");
  Write("model.safetensors.index.json", "{}");
  Write("model-00001-of-00002.safetensors", "x");
  std::filesystem::create_hard_link(dir_.Path("data"), dir_.Path("again"));
  std::filesystem::create_directory_symlink(dir_.path(), dir_.Path("here"));
  const Inputs inputs = {{"data.train.tokens.path[0]", dir_.Path("data")},
                         {"model.weights", dir_.Path("model.safetensors.index.json")},
                         {"model.tokenizer", dir_.Path("not there")}};
  for (const char* const name :
       {"data", "again", "./data", "here/data", "model.safetensors.index.json",
        "model-00001-of-00002.safetensors", "not there"}) {
    const absl::Status refused = CheckTarget(dir_.Path(name), "n", true, inputs);
    EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << name << ": " << refused;
    EXPECT_THAT(Message(refused), HasSubstr(" is read by this job ("));
  }
  EXPECT_TRUE(CheckTarget(dir_.Path("new"), "n", true, inputs).ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(CheckHoldsNoInput(dir_.path(), inputs)));
  EXPECT_TRUE(absl::IsFailedPrecondition(CheckHoldsNoInput(dir_.Path("here"), inputs)));
  EXPECT_TRUE(CheckHoldsNoInput(dir_.Path("folder"), inputs).ok());
}

TEST_F(ExportsTest, NothingIsWrittenIntoACheckpoint) {
  Write("MANIFEST.json", "{}");
  EXPECT_TRUE(absl::IsFailedPrecondition(CheckTarget(dir_.Path("new"), "n", true)));
}

TEST_F(ExportsTest, AConfigBelongsToTheExportBesideIt) {
  const auto check = [&](bool overwrite) {
    return CheckConfig(dir_.Path("w"), "mine", "n", overwrite);
  };
  EXPECT_TRUE(check(false).ok()) << "there is none";
  Write("config.json", "mine");
  EXPECT_TRUE(check(false).ok());
  Write("config.json", "theirs");
  EXPECT_TRUE(absl::IsFailedPrecondition(check(true))) << "no export belongs to it";
  EXPECT_TRUE(CheckConfig(dir_.Path("w"), "", "n", false).ok()) << "none is written";
  Write("w", "no export");
  EXPECT_TRUE(absl::IsFailedPrecondition(check(true)));
  WriteExport("w", {{"format", "pt"}});
  EXPECT_TRUE(absl::IsFailedPrecondition(check(true))) << "somebody's model";
  WriteExport("w", MetadataOf("m", "m-1"));
  EXPECT_TRUE(absl::IsFailedPrecondition(check(false)));
  EXPECT_TRUE(check(true).ok()) << "the job says that this export is replaced";
  WriteExport("w", MetadataOf("n", "n-1"));
  EXPECT_TRUE(check(false).ok());
  std::filesystem::remove(dir_.Path("config.json"));
  ASSERT_EQ(symlink("w", dir_.Path("config.json").c_str()), 0);
  EXPECT_TRUE(absl::IsFailedPrecondition(check(true)));
}

TEST_F(ExportsTest, ASignatureIsOfTheFileAsItWasWritten) {
  Write("p", "abc");
  EXPECT_FALSE(IsSignedBy(dir_.Path("p"), "n"));
  Sign(dir_.Path("p"), "n");
  ASSERT_TRUE(IsSignedBy(dir_.Path("p"), "n")) << "the file system has no extended attributes";
  EXPECT_FALSE(IsSignedBy(dir_.Path("p"), "m"));
  EXPECT_FALSE(IsSignedBy(dir_.Path("p"), ""));
  std::filesystem::rename(dir_.Path("p"), dir_.Path("q"));
  EXPECT_TRUE(IsSignedBy(dir_.Path("q"), "n"));
  EXPECT_TRUE(CheckOutput(dir_.Path("q"), "n", false).ok());
  std::ofstream(dir_.Path("q"), std::ios::app) << "d";
  EXPECT_FALSE(IsSignedBy(dir_.Path("q"), "n"));
  EXPECT_FALSE(IsSignedBy(dir_.Path("none"), "n"));
}

TEST_F(ExportsTest, ASignatureOfAFolderIsOfItsEntries) {
  const std::string writer = WriterOf("job", 4);
  std::filesystem::create_directory(dir_.Path("f"));
  Write("f/a", "abc");
  Sign(dir_.Path("f"), writer);
  std::filesystem::rename(dir_.Path("f"), dir_.Path("g"));
  EXPECT_TRUE(IsSignedBy(dir_.Path("g"), writer));
  EXPECT_FALSE(IsSignedBy(dir_.Path("g"), WriterOf("job", 5)));
  EXPECT_FALSE(IsSignedBy(dir_.Path("g"), WriterOf("other", 4)));
  Write("g/b", "abc");
  EXPECT_FALSE(IsSignedBy(dir_.Path("g"), writer));
}

TEST(TemporaryPath, CarriesJobGenerationAndIncarnation) {
  EXPECT_EQ(TemporaryPath("/out/model.safetensors", "tiny-1", 3, "i"),
            "/out/.model.safetensors.tiny-1-g3-i.tmp");
}

TEST_F(ExportsTest, OnlyWhatOlderGenerationsOfThisJobLeftIsRemoved) {
  const std::string path = dir_.Path("w");
  const auto name = [&](const std::string& job, int64_t generation,
                        const std::string& target = "w") {
    return std::filesystem::path(TemporaryPath(dir_.Path(target), job, generation, kUuid))
        .filename()
        .string();
  };
  const std::string stale = name("a", 1);
  const std::string numbered = ".w.a-g1-" + std::string(kUuid) + "-3623607056.tmp";
  const std::vector<std::string> kept = {name("a", 2),
                                         name("a", 3),
                                         name("b", 1),
                                         name("a-g1", 1),
                                         name("a", 1, "v"),
                                         "w",
                                         "w.tmp",
                                         ".w.a-g1-x.tmp",
                                         ".w.a-g1-" + std::string(kUuid),
                                         ".w.a-g01-" + std::string(kUuid) + ".tmp",
                                         ".w.a-g-1-" + std::string(kUuid) + ".tmp",
                                         ".w.a-g.tmp",
                                         ".w.a-g1-" + std::string(kUuid) + "-.tmp",
                                         ".w.a-g1-" + std::string(kUuid) + "-x.tmp"};
  for (const std::string& other : kept) Write(other, "x");
  Write(stale, "x");
  // A model's folder.
  std::filesystem::create_directory(dir_.Path(numbered));
  Write(numbered + "/config.json", "x");
  const auto removed = RemoveStale(path, "a", 2);
  ASSERT_TRUE(removed.ok()) << removed.status();
  EXPECT_THAT(*removed, ElementsAre(numbered, stale));
  EXPECT_FALSE(Exists(stale));
  EXPECT_FALSE(Exists(numbered));
  for (const std::string& other : kept) EXPECT_TRUE(Exists(other)) << other;
}

TEST_F(ExportsTest, AFolderThatIsNotThereHoldsNothingStale) {
  const auto removed = RemoveStale(dir_.Path("none/w"), "a", 2);
  ASSERT_TRUE(removed.ok()) << removed.status();
  EXPECT_THAT(*removed, IsEmpty());
}

TEST_F(ExportsTest, AFileThatNobodySignedIsLeftAlone) {
  EXPECT_TRUE(CheckOutput(dir_.Path("none"), "n", false).ok());
  EXPECT_TRUE(CheckOutput(dir_.Path("no/folder/none"), "n", false).ok());
  Write("there", "x");
  const absl::Status found = CheckOutput(dir_.Path("there"), "n", false);
  EXPECT_EQ(found.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(Message(found), HasSubstr(dir_.Path("there") + " exists"));
  EXPECT_THAT(Message(found), HasSubstr("overwrite: true"));
  EXPECT_TRUE(CheckOutput(dir_.Path("there"), "n", true).ok());
}

}  // namespace
}  // namespace muster::exports
