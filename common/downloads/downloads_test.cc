#include "common/downloads/downloads.h"

#include "gtest/gtest.h"

namespace muster {
namespace {

TEST(DownloadPath, IsInTheFolder) { EXPECT_EQ(DownloadPath("/a/b", "job-1", 7), "/a/b/job-1-7"); }

TEST(DownloadPath, WhatIsNoJobsIdHasNone) {
  for (const char* id : {"", "..", "../x", "/etc/passwd", "a/b", ".hidden", "A"}) {
    EXPECT_EQ(DownloadPath("/a/b", id, 7), "") << id;
  }
  EXPECT_EQ(DownloadPath("/a/b", std::string(64, 'a'), 7), "");
  EXPECT_EQ(DownloadPath("", "job", 7), "") << "there is no folder";
}

}  // namespace
}  // namespace muster
