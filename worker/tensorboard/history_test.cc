#include "worker/tensorboard/history.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "common/files/temp_dir.h"
#include "worker/tensorboard/event.h"

namespace muster::tensorboard {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

Entry Number(int64_t step, double value) {
  return {.step = step, .wall_time = 1.5, .tag = "loss", .value = value};
}
Entry Text(int64_t step, const std::string& text) {
  return {.step = step, .wall_time = 2.5, .tag = "marks", .value = text};
}

class HistoryTest : public testing::Test {
 protected:
  // A file that begins with a START.
  void Write(int64_t number, int64_t start, const std::vector<Entry>& entries,
             const std::string& more = "") {
    std::ofstream(dir_.Path(FileName(number, "writer")), std::ios::binary)
        << VersionRecord(0) << StartRecord(start, 0) << EntryRecords(entries) << more;
  }
  History Read(int64_t step) { return *ReadHistory(dir_.Path(""), step); }

  files::TempDir dir_;
};

TEST_F(HistoryTest, IsEmptyWithoutFiles) {
  EXPECT_EQ(*LargestNumber(dir_.Path("missing")), 0);
  EXPECT_THAT(Read(5).at_step, IsEmpty());
  EXPECT_EQ(Read(5).newest, std::nullopt);
}

TEST_F(HistoryTest, HasTheEntriesOfOneStep) {
  Write(1, 0, {Number(1, 10), Number(2, 20), Text(2, "pause"), Number(3, 30)});
  EXPECT_THAT(Read(2).at_step, ElementsAre(Number(2, 20), Text(2, "pause")));
  EXPECT_EQ(Read(2).newest, 2);
  EXPECT_EQ(Read(9).newest, 3);
}

TEST_F(HistoryTest, ReadsTheNewestFileThatBeginsBeforeTheStep) {
  Write(1, 0, {Number(1, 10), Number(2, 20), Number(3, 30)});
  Write(2, 2, {Number(2, 21), Number(3, 31)});
  Write(11, 3, {Number(3, 32)});
  EXPECT_THAT(Read(1).at_step, ElementsAre(Number(1, 10)));
  EXPECT_THAT(Read(2).at_step, ElementsAre(Number(2, 21)));
  EXPECT_THAT(Read(3).at_step, ElementsAre(Number(3, 32)));
  EXPECT_EQ(*LargestNumber(dir_.Path("")), 11);
}

TEST_F(HistoryTest, FollowsAStartWithinAFile) {
  Write(1, 0, {Number(1, 10), Number(2, 20)}, StartRecord(2, 0) + EntryRecords({Number(2, 22)}));
  EXPECT_THAT(Read(1).at_step, ElementsAre(Number(1, 10)));
  EXPECT_THAT(Read(2).at_step, ElementsAre(Number(2, 22)));
}

TEST_F(HistoryTest, EndsWhereAFileIsTorn) {
  Write(1, 0, {Number(1, 10), Number(2, 20)}, "torn");
  EXPECT_THAT(Read(2).at_step, ElementsAre(Number(2, 20)));
  Write(2, 1, {}, "torn");
  EXPECT_THAT(Read(2).at_step, IsEmpty());
  Write(3, 1, {Number(1, 11)});
  EXPECT_EQ(Read(2).newest, 1);
}

TEST_F(HistoryTest, PassesOverFilesOfOthers) {
  Write(1, 0, {Number(1, 10)});
  std::ofstream(dir_.Path("events.out.tfevents.mine")) << "text";
  std::ofstream(dir_.Path(FileName(7, "empty")));
  EXPECT_THAT(Read(1).at_step, ElementsAre(Number(1, 10)));
  EXPECT_EQ(*LargestNumber(dir_.Path("")), 7) << "the next file comes after it";
}

}  // namespace
}  // namespace muster::tensorboard
