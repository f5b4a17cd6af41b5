#include "common/log/log.h"

#include <gtest/gtest.h>
#include <spdlog/spdlog.h>

#include <string>

namespace muster {
namespace {

TEST(Log, TextsOfOthersMoveNoCursorAndForgeNoLine) {
  testing::internal::CaptureStderr();
  InitLog("musterd");
  spdlog::info("node '{}'", "a\x1b[2J\nb\r\xc2\x9b");
  const std::string log = testing::internal::GetCapturedStderr();
  const std::string time = "2026-11-26T12:00:00.000Z";
  ASSERT_GT(log.size(), time.size());
  EXPECT_EQ(log.substr(time.size()), " I musterd: node 'a\\x1b[2J\n    b\\x0d\\u009b'\n");
}

}  // namespace
}  // namespace muster
