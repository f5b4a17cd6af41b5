#include "worker/tensorboard/folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "common/files/temp_dir.h"
#include "worker/tensorboard/event.h"

namespace muster::tensorboard {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

class EarlierFilesTest : public testing::Test {
 protected:
  // Writes a file with numbers of these steps.
  void Write(int64_t number, const std::vector<int64_t>& steps, const std::string& more = "") {
    std::ofstream file(dir_.Path(FileName(number, "writer")), std::ios::binary);
    file << RecordOf(VersionEvent(0)) << RecordOf(StartEvent(steps.empty() ? 0 : steps.front(), 0));
    for (const int64_t step : steps) {
      file << NumberAt(step, "loss");
    }
    file << more;
  }
  static std::string NumberAt(int64_t step, const std::string& tag) {
    Event event = EventAt(step, 0);
    AddNumber(tag, 1, &event);
    return RecordOf(event);
  }
  std::vector<std::string> Names() { return *EventFiles(dir_.Path("")); }
  Numbers Around(int64_t step) { return NumbersAround(dir_.Path(""), Names(), step); }
  std::optional<int64_t> Newest(int64_t step) { return Around(step).newest; }

  files::TempDir dir_;
};

TEST_F(EarlierFilesTest, AreNoneInAFolderThatIsMissing) {
  EXPECT_THAT(*EventFiles(dir_.Path("missing")), IsEmpty());
  EXPECT_EQ(LargestNumber({}), 0);
  EXPECT_EQ(NumbersAround(dir_.Path("missing"), {}, 5).newest, std::nullopt);
}

TEST_F(EarlierFilesTest, AreNamedInTheOrderInWhichTheyAreRead) {
  Write(11, {});
  Write(2, {});
  std::ofstream(dir_.Path("events.out.tfevents.mine")) << "text";
  EXPECT_THAT(Names(), ElementsAre("events.out.tfevents.0000000002.writer",
                                   "events.out.tfevents.0000000011.writer"));
  EXPECT_EQ(LargestNumber(Names()), 11);
}

TEST_F(EarlierFilesTest, HaveALargestNumberThatNeedNotBeInTheLastName) {
  Write(11, {});
  std::ofstream(dir_.Path("events.out.tfevents.5.other")) << "a number without zeros before it";
  EXPECT_EQ(Names().back(), "events.out.tfevents.5.other");
  EXPECT_EQ(LargestNumber(Names()), 11);
}

TEST_F(EarlierFilesTest, HaveNoNumberOfMoreThanTenDigits) {
  Write(11, {});
  std::ofstream(dir_.Path("events.out.tfevents.9223372036854775807.other")) << "the largest int64";
  EXPECT_THAT(Names(), ElementsAre("events.out.tfevents.0000000011.writer"));
  EXPECT_EQ(LargestNumber(Names()), 11);
}

TEST_F(EarlierFilesTest, HaveStepsUpToTheOneThatIsAskedFor) {
  Write(1, {1, 2, 3});
  EXPECT_EQ(Newest(0), std::nullopt);
  EXPECT_EQ(Newest(2), 2);
  EXPECT_EQ(Newest(9), 3);
}

TEST_F(EarlierFilesTest, HaveStepsOfTheNewestFileThatHasOne) {
  Write(1, {1, 2, 3, 4, 5, 6, 7});
  Write(2, {3, 4});
  Write(3, {9, 10});
  Write(4, {});
  EXPECT_EQ(Newest(6), 4) << "a reader has forgotten steps from 3 on of the first file";
  EXPECT_EQ(Newest(2), 2);
  EXPECT_EQ(Newest(9), 9);
}

TEST_F(EarlierFilesTest, HaveStepsWithNumbersOnly) {
  Event text = EventAt(5, 0);
  AddText("marks/generations", "generation 2", &text);
  Event none = EventAt(6, 0);
  AddNoNumber("loss", &none);
  Write(1, {1, 2}, RecordOf(text) + RecordOf(none));
  EXPECT_EQ(Newest(9), 2);
  EXPECT_THAT(Around(1).tags_after, UnorderedElementsAre("loss"));
  EXPECT_THAT(Around(2).tags_after, IsEmpty());
}

TEST_F(EarlierFilesTest, HaveTagsOfLaterStepsThatNoLaterFileTakesBack) {
  // A number at step 4 counts until a START of step 3. A START of a later step does not affect it.
  Write(1, {1, 2, 3}, NumberAt(4, "validation"));
  EXPECT_THAT(Around(2).tags_after, UnorderedElementsAre("loss", "validation"));
  EXPECT_THAT(Around(3).tags_after, UnorderedElementsAre("validation"));
  EXPECT_THAT(Around(-1).tags_after, UnorderedElementsAre("loss", "validation"));
  Write(2, {5, 6});
  EXPECT_THAT(Around(3).tags_after, UnorderedElementsAre("loss", "validation"));
  Write(3, {3}, NumberAt(9, "test"));
  EXPECT_THAT(Around(2).tags_after, UnorderedElementsAre("loss", "test"));
  EXPECT_THAT(Around(3).tags_after, UnorderedElementsAre("test"));
  EXPECT_EQ(Newest(2), 2);
}

TEST_F(EarlierFilesTest, AreReadUpToADamage) {
  Write(1, {1, 2}, "torn" + NumberAt(5, "loss"));
  std::ofstream(dir_.Path(FileName(7, "empty")));
  EXPECT_EQ(Newest(5), 2);
  EXPECT_EQ(LargestNumber(Names()), 7) << "the next file comes after it";
}

}  // namespace
}  // namespace muster::tensorboard
