#include "worker/tensorboard/event.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <sstream>

#include "worker/tensorboard/event.pb.h"
#include "worker/tensorboard/record.h"

namespace muster::tensorboard {
namespace {

using testing::ElementsAre;

Entry EntryOf(int64_t step, double wall_time, std::variant<double, std::string> value) {
  return {.step = step, .wall_time = wall_time, .tag = "tag", .value = std::move(value)};
}

std::vector<std::string> DataOf(const std::string& records) {
  std::istringstream file(records);
  std::vector<std::string> data;
  while (auto one = ReadRecord(file)) data.push_back(*std::move(one));
  return data;
}

TEST(Event, OfAFilesBeginSaysTheVersion) {
  Event event;
  ASSERT_TRUE(event.ParseFromString(DataOf(VersionRecord(1.5)).at(0)));
  EXPECT_EQ(event.file_version(), "brain.Event:2");
  EXPECT_EQ(event.wall_time(), 1.5);
}

TEST(Event, OfAStartIsReadBack) {
  const auto parsed = ParseEvent(DataOf(StartRecord(7, 1.5)).at(0));
  ASSERT_TRUE(parsed.has_value());
  EXPECT_EQ(parsed->start, 7);
}

TEST(Event, HasAllEntriesOfOneStepAndTime) {
  const std::vector<Entry> entries = {EntryOf(1, 2, 0.1), EntryOf(1, 2, "a text"),
                                      EntryOf(1, 3, 0.2), EntryOf(2, 3, 0.3)};
  const auto data = DataOf(EntryRecords(entries));
  ASSERT_EQ(data.size(), 3u);
  EXPECT_THAT(ParseEvent(data[0])->entries, ElementsAre(entries[0], entries[1]));
  EXPECT_THAT(ParseEvent(data[1])->entries, ElementsAre(entries[2]));
  EXPECT_THAT(ParseEvent(data[2])->entries, ElementsAre(entries[3]));
  EXPECT_EQ(ParseEvent(data[0])->start, std::nullopt);
}

TEST(Event, KeepsEveryBitOfANumberAndShowsTheNearestFloat32) {
  for (const double number : {0.1, 1e-300, 1e300, std::nextafter(3.0, 4.0), -0.0,
                              std::numeric_limits<double>::infinity()}) {
    const std::string data = DataOf(EntryRecords({EntryOf(1, 2, number)})).at(0);
    EXPECT_EQ(ParseEvent(data)->entries.at(0).value, (std::variant<double, std::string>(number)));
    Event event;
    ASSERT_TRUE(event.ParseFromString(data));
    EXPECT_EQ(event.summary().value(0).tensor().float_val(0), static_cast<float>(number));
  }
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto parsed = ParseEvent(DataOf(EntryRecords({EntryOf(1, 2, nan)})).at(0));
  EXPECT_TRUE(std::isnan(std::get<double>(parsed->entries.at(0).value)));
}

TEST(Event, IsNotAnyBytes) { EXPECT_FALSE(ParseEvent("\xff\xff\xff").has_value()); }

}  // namespace
}  // namespace muster::tensorboard
