#include "coordinator/webhook/settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>

#include "common/files/files.h"
#include "common/files/temp_dir.h"

namespace muster::webhook {
namespace {

using testing::HasSubstr;

class ReadSecretTest : public testing::Test {
 protected:
  std::string Make(const std::string& contents, mode_t mode) {
    const std::string path = dir_.Path("secret");
    EXPECT_TRUE(files::WriteAtomically(path, contents).ok());
    EXPECT_EQ(chmod(path.c_str(), mode), 0);
    return path;
  }
  std::string ErrorOf(const std::string& path) {
    const auto secret = ReadSecret(path);
    EXPECT_EQ(secret.status().code(), absl::StatusCode::kInvalidArgument) << secret.status();
    return std::string(secret.status().message());
  }
  files::TempDir dir_;
};

TEST_F(ReadSecretTest, TheLineBreakAtTheEndDoesNotBelongToIt) {
  EXPECT_EQ(*ReadSecret(Make("sixteen bytes...\n", 0600)), "sixteen bytes...");
  EXPECT_EQ(*ReadSecret(Make("sixteen bytes...\r\n", 0400)), "sixteen bytes...");
  EXPECT_EQ(*ReadSecret(Make("sixteen bytes...", 0600)), "sixteen bytes...");
}

TEST_F(ReadSecretTest, AFileThatOthersMayReadIsRefused) {
  for (const mode_t mode : {0640, 0604, 0620}) {
    EXPECT_THAT(ErrorOf(Make("sixteen bytes...", mode)), HasSubstr("expected the mode 0600"));
  }
}

TEST_F(ReadSecretTest, AFileOfAnotherUserIsRefused) {
  const std::string path = Make("sixteen bytes...", 0600);
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to give a file to another user";
  ASSERT_EQ(chown(path.c_str(), 12345, 12345), 0);
  EXPECT_THAT(ErrorOf(path), HasSubstr("found one of the user 12345"));
}

TEST_F(ReadSecretTest, WhatIsNoSecretIsRefused) {
  EXPECT_THAT(ErrorOf(dir_.Path("missing")), HasSubstr("expected a file with the secret"));
  EXPECT_THAT(ErrorOf(dir_.path()), HasSubstr("expected a regular file"));
  EXPECT_THAT(ErrorOf(Make("short\n", 0600)), HasSubstr("at least 16 bytes, found 5"));
  EXPECT_THAT(ErrorOf(Make(std::string(kLongestSecret + 1, 'a'), 0600)),
              HasSubstr("at most 4096 bytes, found 4097"));
}

}  // namespace
}  // namespace muster::webhook
