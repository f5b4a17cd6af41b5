#include "client/files/partial_file.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <string>

#include "common/files/files.h"
#include "common/files/hash.h"
#include "common/files/temp_dir.h"

namespace muster::client {
namespace {

class PartialFileTest : public testing::Test {
 protected:
  std::unique_ptr<PartialFile> MustOpen(const std::string& tag = "job-7") {
    auto file = PartialFile::Open(path_, tag);
    EXPECT_TRUE(file.ok()) << file.status();
    return file.ok() ? *std::move(file) : nullptr;
  }
  std::set<std::string> Names() const {
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path())) {
      names.insert(entry.path().filename().string());
    }
    return names;
  }
  std::string Contents() const { return files::ReadFile(path_).value_or("(none)"); }

  files::TempDir folder_;
  const std::string path_ = folder_.Path("state.pt");
};

TEST_F(PartialFileTest, HasItsNameOnlyWhenItIsWhole) {
  auto file = MustOpen();
  ASSERT_TRUE(file->Append("one ").ok());
  EXPECT_EQ(Names(), std::set<std::string>{".state.pt.job-7.part"});
  ASSERT_TRUE(file->Append("two").ok());
  EXPECT_EQ(file->bytes(), 7u);
  EXPECT_EQ(file->Hash(), files::HashBytes("one two", 7));
  ASSERT_TRUE(file->Publish(Existing::kKeep).ok());
  EXPECT_EQ(Names(), std::set<std::string>{"state.pt"});
  EXPECT_EQ(Contents(), "one two");
}

TEST_F(PartialFileTest, AnotherProcessContinuesIt) {
  ASSERT_TRUE(MustOpen()->Append("one ").ok());
  auto file = MustOpen();
  EXPECT_EQ(file->bytes(), 4u);
  ASSERT_TRUE(file->Append("two").ok());
  EXPECT_EQ(file->Hash(), files::HashBytes("one two", 7));
  EXPECT_EQ(MustOpen("job-8")->bytes(), 0u) << "the part of another file";
  ASSERT_TRUE(file->Restart().ok());
  ASSERT_TRUE(file->Append("three").ok());
  EXPECT_EQ(file->Hash(), files::HashBytes("three", 5));
  ASSERT_TRUE(file->Publish(Existing::kKeep).ok());
  EXPECT_EQ(Contents(), "three");
}

TEST_F(PartialFileTest, OneProcessAtATimeReceivesIt) {
  auto file = MustOpen();
  EXPECT_TRUE(absl::IsFailedPrecondition(PartialFile::Open(path_, "job-7").status()));
  file.reset();
  EXPECT_NE(MustOpen(), nullptr);
}

TEST_F(PartialFileTest, WhatIsDiscardedLeavesNothing) {
  auto file = MustOpen();
  ASSERT_TRUE(file->Append("one").ok());
  file->Discard();
  file.reset();
  EXPECT_TRUE(Names().empty());
}

TEST_F(PartialFileTest, AFileThatCameMeanwhileIsReplacedOnlyIfAsked) {
  auto file = MustOpen();
  ASSERT_TRUE(file->Append("new").ok());
  ASSERT_TRUE(files::WriteAtomically(path_, "old").ok());
  EXPECT_TRUE(absl::IsAlreadyExists(file->Publish(Existing::kKeep)));
  EXPECT_EQ(Contents(), "old");
  ASSERT_TRUE(file->Publish(Existing::kReplace).ok());
  EXPECT_EQ(Contents(), "new");
}

TEST_F(PartialFileTest, ANameThatCannotBeUsedIsFoundBeforeAnythingArrives) {
  EXPECT_TRUE(CheckNewFile(path_, Existing::kKeep).ok());
  ASSERT_TRUE(files::WriteAtomically(path_, "old").ok());
  EXPECT_TRUE(absl::IsAlreadyExists(CheckNewFile(path_, Existing::kKeep)));
  EXPECT_TRUE(CheckNewFile(path_, Existing::kReplace).ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(CheckNewFile(folder_.path(), Existing::kReplace)));
  EXPECT_TRUE(absl::IsNotFound(CheckNewFile(folder_.Path("no/file"), Existing::kKeep)));
  EXPECT_FALSE(CheckNewFile(path_ + "/file", Existing::kKeep).ok());
}

}  // namespace
}  // namespace muster::client
