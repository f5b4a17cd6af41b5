#include "common/certs/deny_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/files/files.h"
#include "common/files/temp_dir.h"

namespace muster::certs {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(ParseDenyList, LinesAreSerialNumbersWithComments) {
  const ParsedDenyList parsed = ParseDenyList("# all\n\nAB:01  # alice\r\n 0x2f\nab01");
  EXPECT_TRUE(parsed.problem.ok()) << parsed.problem;
  EXPECT_THAT(parsed.serials, ElementsAre("2f", "ab01"));
}

TEST(ParseDenyList, WrongLinesAreNamedAndTheOthersCount) {
  const ParsedDenyList parsed = ParseDenyList("1a\nalice\nx\ny\nz\n2b\n");
  EXPECT_THAT(parsed.serials, ElementsAre("1a", "2b"));
  EXPECT_EQ(parsed.problem.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(parsed.problem.message()), HasSubstr("line 2: 'alice'"));
  EXPECT_THAT(std::string(parsed.problem.message()), HasSubstr("and 1 more"));
}

class DenyListTest : public testing::Test {
 protected:
  void Write(const std::string& text) { ASSERT_TRUE(files::WriteAtomically(path_, text).ok()); }
  absl::StatusOr<std::unique_ptr<DenyList>> Load() {
    return DenyList::Load(path_, {.now = [this] { return now_; },
                                  .on_trouble =
                                      [this](const absl::Status& status) {
                                        troubles_.emplace_back(status.message());
                                      }});
  }

  files::TempDir folder_;
  const std::string path_ = folder_.Path("revoked");
  absl::Time now_ = absl::UnixEpoch();
  std::vector<std::string> troubles_;
};

TEST_F(DenyListTest, IsReadAgainWhenItHasChangedButNotAtEachCall) {
  Write("1a\n");
  const auto list = Load();
  ASSERT_TRUE(list.ok()) << list.status();
  EXPECT_TRUE((*list)->Has("1a"));
  EXPECT_FALSE((*list)->Has("2b"));
  Write("1a\n2b\n");
  now_ += DenyList::kInterval - absl::Nanoseconds(1);
  EXPECT_FALSE((*list)->Has("2b"));
  now_ += absl::Nanoseconds(1);
  EXPECT_TRUE((*list)->Has("2b"));
  EXPECT_THAT(troubles_, IsEmpty());
}

// Writes in the way of `cp`: first empty, then half, then all of the file.
TEST_F(DenyListTest, WhatWasRevokedOnceStaysSoWhileTheFileIsWritten) {
  Write("1a\n2b\n");
  const auto list = Load();
  ASSERT_TRUE(list.ok()) << list.status();
  for (const std::string text : {"", "1a\n", "1a\n2b\n3c\n"}) {
    Write(text);
    for (int i = 0; i < 3; ++i) {
      now_ += DenyList::kInterval;
      EXPECT_TRUE((*list)->Has("1a")) << text;
      EXPECT_TRUE((*list)->Has("2b")) << text;
    }
  }
  EXPECT_TRUE((*list)->Has("3c"));
  EXPECT_THAT(troubles_, ElementsAre(AllOf(HasSubstr(path_), HasSubstr("(1a, 2b)")),
                                     HasSubstr("(2b); they stay revoked")));
}

TEST_F(DenyListTest, OfManyThatAreGoneThreeAreNamed) {
  Write("1a\n2b\n3c\n4d\n5e\n");
  const auto list = Load();
  ASSERT_TRUE(list.ok()) << list.status();
  Write("");
  now_ += DenyList::kInterval;
  EXPECT_TRUE((*list)->Has("5e"));
  EXPECT_THAT(troubles_, ElementsAre(AllOf(HasSubstr(": 5 serial numbers"),
                                           HasSubstr("(1a, 2b, 3c and 2 more)"))));
}

TEST_F(DenyListTest, AFileThatVanishesChangesNothingAndIsToldOnce) {
  Write("1a\n");
  const auto list = Load();
  ASSERT_TRUE(list.ok()) << list.status();
  ASSERT_EQ(unlink(path_.c_str()), 0);
  for (int i = 0; i < 3; ++i) {
    now_ += DenyList::kInterval;
    EXPECT_TRUE((*list)->Has("1a"));
  }
  EXPECT_THAT(troubles_, ElementsAre(HasSubstr(path_)));
  Write("1a\n2b\n");
  now_ += DenyList::kInterval;
  EXPECT_TRUE((*list)->Has("2b"));
  EXPECT_EQ(troubles_.size(), 1);
}

TEST_F(DenyListTest, AWrongLineInAChangedFileIsToldAndTheOthersCount) {
  Write("1a\n");
  const auto list = Load();
  ASSERT_TRUE(list.ok()) << list.status();
  Write("1a\nalice\n2b\n");
  for (int i = 0; i < 2; ++i) {
    now_ += DenyList::kInterval;
    EXPECT_TRUE((*list)->Has("1a"));
    EXPECT_TRUE((*list)->Has("2b"));
  }
  EXPECT_THAT(troubles_, ElementsAre(HasSubstr("line 2")));
}

TEST_F(DenyListTest, ManyMayAskWhileItChanges) {
  Write("1a\n");
  std::atomic<int> looks = 0;
  const auto list = DenyList::Load(
      path_, {.now = [&] { return absl::UnixEpoch() + ++looks * DenyList::kInterval; }});
  ASSERT_TRUE(list.ok()) << list.status();
  std::vector<std::thread> askers;
  for (int i = 0; i < 4; ++i) {
    askers.emplace_back([&] {
      for (int j = 0; j < 100; ++j) EXPECT_TRUE((*list)->Has("1a"));
    });
  }
  for (int i = 0; i < 20; ++i) Write("1a\n2b\n" + std::string(i, '#'));
  for (std::thread& one : askers) one.join();
  EXPECT_TRUE((*list)->Has("2b"));
}

TEST_F(DenyListTest, AtTheStartAMissingFileAndAWrongLineAreErrors) {
  EXPECT_EQ(Load().status().code(), absl::StatusCode::kNotFound);
  Write("alice\n");
  EXPECT_EQ(Load().status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(DenyList::None()->Has("1a"));
}

TEST_F(DenyListTest, SerialsAreAddedOnceAndTheRestOfTheFileStays) {
  ASSERT_TRUE(AddToDenyList(path_, {"1a", "2b"}, "operator/alice").ok());
  ASSERT_TRUE(AddToDenyList(path_, {"2b", "3c"}, "agent/node1").ok());
  const std::string text = files::ReadFile(path_).value();
  EXPECT_THAT(ParseDenyList(text).serials, ElementsAre("1a", "2b", "3c"));
  EXPECT_THAT(text, HasSubstr("2b  # operator/alice\n3c  # agent/node1\n"));

  Write("1a\nalice");
  EXPECT_EQ(AddToDenyList(path_, {"2b"}, "").code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(files::ReadFile(path_).value(), "1a\nalice");
}

}  // namespace
}  // namespace muster::certs
