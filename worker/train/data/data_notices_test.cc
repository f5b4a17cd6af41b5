#include <gtest/gtest.h>

#include "worker/data/notes.h"
#include "worker/train/data/rank_data.h"

namespace muster::train {
namespace {

using Kind = data::Note::Kind;

TEST(DataNotices, EachKindOfNoteIsOneNotice) {
  EXPECT_TRUE(DataNotices("data.train", {}, 0).empty());
  const auto notices = DataNotices("data.train",
                                   {{Kind::kCast, "a"},
                                    {Kind::kDoubt, "b"},
                                    {Kind::kCast, "c"},
                                    {Kind::kCast, "d"},
                                    {Kind::kCast, "e"}},
                                   7);
  ASSERT_EQ(notices.size(), 2u);
  EXPECT_EQ(notices[0].reason, "DATA_CONVERTED");
  EXPECT_EQ(notices[0].message, "data.train: a; c; d; and 1 more");
  EXPECT_EQ(notices[0].step, 7);
  EXPECT_EQ(notices[1].reason, "DATA_DOUBTFUL");
  EXPECT_EQ(notices[1].message, "data.train: b");
}

TEST(Notes, WhatIsTrueOfSeveralFilesIsSaidOnce) {
  data::Notes notes;
  notes.Add(Kind::kCast, "labels: int32 is read as int64", "a");
  notes.Add(Kind::kCast, "labels: int32 is read as int64", "b");
  notes.Add(Kind::kCast, "labels: int16 is read as int64", "c");
  EXPECT_EQ(notes.All(), (std::vector<data::Note>{
                             {Kind::kCast, "a and 1 more: labels: int32 is read as int64"},
                             {Kind::kCast, "c: labels: int16 is read as int64"}}));
}

}  // namespace
}  // namespace muster::train
