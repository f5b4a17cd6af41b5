#include "common/modelfolder/folder.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <string>
#include <vector>

#include "common/files/disk.h"
#include "common/files/files.h"
#include "common/files/temp_dir.h"

namespace muster::modelfolder {
namespace {

namespace fs = std::filesystem;

class FolderTest : public testing::Test {
 protected:
  void Make(const std::string& folder, const std::string& file, const std::string& contents) {
    ASSERT_TRUE(files::CreateDirectories(dir_.path() + "/" + folder).ok());
    ASSERT_TRUE(files::WriteAtomically(dir_.path() + "/" + folder + "/" + file, contents).ok());
  }
  std::string Read(const std::string& path) {
    return files::ReadFile(dir_.path() + "/" + path).value_or("none");
  }
  std::string new_folder() { return dir_.path() + "/new"; }
  std::string folder() { return dir_.path() + "/model"; }

  files::TempDir dir_;
};

TEST_F(FolderTest, GetsItsNameWhereNothingOrAnEmptyFolderIs) {
  Make("new", "config.json", "1");
  ASSERT_TRUE(PlaceFolder(new_folder(), folder(), false).ok());
  EXPECT_EQ(Read("model/config.json"), "1");
  Make("new", "config.json", "2");
  fs::create_directory(dir_.path() + "/empty");
  ASSERT_TRUE(PlaceFolder(new_folder(), dir_.path() + "/empty", false).ok());
  EXPECT_EQ(Read("empty/config.json"), "2");
}

TEST_F(FolderTest, AnOlderModelIsReplacedAsAWholeOnlyIfAsked) {
  Make("model", "config.json", "old");
  Make("model", "model-00001-of-00002.safetensors", "old");
  Make("new", "config.json", "new");
  EXPECT_EQ(PlaceFolder(new_folder(), folder(), false).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(Read("model/config.json"), "old");
  ASSERT_TRUE(PlaceFolder(new_folder(), folder(), true).ok());
  EXPECT_EQ(Read("model/config.json"), "new");
  EXPECT_FALSE(fs::exists(folder() + "/model-00001-of-00002.safetensors"));
  EXPECT_FALSE(fs::exists(new_folder()));
}

TEST_F(FolderTest, AFolderWithAnythingElseIsNeverReplaced) {
  for (const std::string other : {"thesis.txt", "model-1.safetensors", "tokenizer.json.bak"}) {
    SCOPED_TRACE(other);
    Make("model", "config.json", "old");
    Make("model", other, "mine");
    Make("new", "config.json", "new");
    const absl::Status status = PlaceFolder(new_folder(), folder(), true);
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    EXPECT_NE(status.message().find(other), std::string::npos) << status;
    EXPECT_EQ(Read("model/" + other), "mine");
    fs::remove_all(folder());
  }
  fs::create_directory(folder());
  fs::create_symlink("/elsewhere/weights", folder() + "/model.safetensors");
  EXPECT_EQ(CheckTarget(folder(), true).code(), absl::StatusCode::kFailedPrecondition);
  fs::remove_all(folder());
  Make("", "model", "a file");
  EXPECT_EQ(CheckTarget(folder(), true).code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(FolderTest, WhereNamesCannotBeExchangedTheOlderModelStays) {
  class OldFileSystem : public files::Disk {
   public:
    absl::Status Exchange(const std::string&, const std::string&) override {
      return absl::UnimplementedError("cannot exchange");
    }
  } disk;
  Make("model", "config.json", "old");
  Make("new", "config.json", "new");
  EXPECT_EQ(PlaceFolder(new_folder(), folder(), true, disk).code(),
            absl::StatusCode::kUnimplemented);
  EXPECT_EQ(Read("model/config.json"), "old");
  EXPECT_EQ(Read("new/config.json"), "new");
}

TEST_F(FolderTest, ReadsTheFilesOfATokenizer) {
  Make("source", "tokenizer.json", "t");
  Make("source", "chat_template.jinja", "c");
  Make("source", "model.safetensors", "w");
  const auto files = ReadTokenizer(dir_.path() + "/source");
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_EQ(*files, (std::map<std::string, std::string>{{"chat_template.jinja", "c"},
                                                        {"tokenizer.json", "t"}}));
  EXPECT_TRUE(ReadTokenizer(dir_.path() + "/gone")->empty());
}

TEST_F(FolderTest, CopiesTheTokenizerAndNothingElse) {
  Make("source", "tokenizer.json", "t");
  Make("source", "merges.txt", "m");
  Make("source", "model.safetensors", "w");
  Make("source", "secret", "s");
  fs::create_directory(new_folder());
  const auto copied = CopyTokenizer(dir_.path() + "/source", new_folder());
  ASSERT_TRUE(copied.ok()) << copied.status();
  EXPECT_EQ(copied->files, (std::vector<std::string>{"tokenizer.json", "merges.txt"}));
  EXPECT_EQ(Read("new/tokenizer.json"), "t");
  EXPECT_FALSE(fs::exists(new_folder() + "/secret"));
  for (const char* gone : {"/gone", "/source/secret"}) {  // missing, or not a folder
    const auto none = CopyTokenizer(dir_.path() + gone, new_folder());
    ASSERT_TRUE(none.ok()) << none.status();
    EXPECT_TRUE(none->files.empty() && none->unreadable.empty());
  }
  // A link to itself, which a reader with any rights cannot follow.
  fs::create_directory(dir_.path() + "/loop");
  fs::create_symlink("vocab.json", dir_.path() + "/loop/vocab.json");
  const auto unreadable = CopyTokenizer(dir_.path() + "/loop", new_folder());
  ASSERT_TRUE(unreadable.ok()) << unreadable.status();
  ASSERT_EQ(unreadable->unreadable.size(), 1);
  EXPECT_NE(unreadable->unreadable[0].find("loop/vocab.json: "), std::string::npos);
}

}  // namespace
}  // namespace muster::modelfolder
