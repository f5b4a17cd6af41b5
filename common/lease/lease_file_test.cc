#include "common/lease/lease_file.h"

#include <gtest/gtest.h>

#include "common/files/temp_dir.h"

namespace muster {
namespace {

TEST(LeaseFile, WhoReadsItFindsTheNewestEnd) {
  files::TempDir dir;
  LeaseFile file;
  file.Write(absl::UnixEpoch());
  EXPECT_EQ(file.path(), "");
  ASSERT_TRUE(file.Open(dir.Path("lease")).ok());
  EXPECT_EQ(LeaseFile::Read(file.path()), absl::InfiniteFuture()) << "no end is known";
  for (const int64_t second : {7, 8, 3}) {
    const absl::Time end = absl::FromUnixSeconds(second) + absl::Nanoseconds(1);
    file.Write(end);
    EXPECT_EQ(LeaseFile::Read(file.path()), end);
  }
  file.Write(absl::InfiniteFuture());
  EXPECT_EQ(LeaseFile::Read(file.path()), absl::InfiniteFuture());
}

TEST(LeaseFile, WhatAFormerAgentLeftIsNoEnd) {
  files::TempDir dir;
  {
    LeaseFile former;
    ASSERT_TRUE(former.Open(dir.Path("lease")).ok());
    former.Write(absl::UnixEpoch());
  }
  LeaseFile file;
  ASSERT_TRUE(file.Open(dir.Path("lease")).ok());
  EXPECT_EQ(LeaseFile::Read(file.path()), absl::InfiniteFuture());
}

TEST(LeaseFile, WhereThereIsNoneNoEndIsKnown) {
  files::TempDir dir;
  EXPECT_EQ(LeaseFile::Read(dir.Path("none")), absl::InfiniteFuture());
  LeaseFile file;
  EXPECT_FALSE(file.Open("/proc/no/such").ok());
  EXPECT_EQ(file.path(), "");
}

}  // namespace
}  // namespace muster
