#include "worker/trace/chrome_trace.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace muster::trace {
namespace {

using nlohmann::json;

TEST(ChromeTrace, HasALineForEachLaneOfEachRank) {
  const json file = json::parse(ChromeTrace({ChromeEvents(0, {}), ChromeEvents(3, {})}));
  EXPECT_EQ(file["traceEvents"].size(), 8u);
  EXPECT_EQ(
      file["traceEvents"][4],
      json({{"ph", "M"}, {"name", "process_name"}, {"args", {{"name", "rank 3"}}}, {"pid", 3}}));
  EXPECT_EQ(file["traceEvents"][6]["args"]["name"], "units");
}

TEST(ChromeTrace, SpansMarksAndLevelsAreEventsOfTheirKinds) {
  const json file = json::parse(ChromeTrace(
      {ChromeEvents(1, {{Event::Kind::kSpan, Lane::kSteps, "forward", 5000, 7500},
                        {Event::Kind::kMark, Lane::kUnits, "free \"h\"\xff", 8000, 8000},
                        {Event::Kind::kLevel, Lane::kUnits, "gathered", 9000, 9000, 12}})}));
  const json& events = file["traceEvents"];
  ASSERT_EQ(events.size(), 4u + 3);
  EXPECT_EQ(events[4], json({{"name", "forward"},
                             {"cat", "steps"},
                             {"tid", 0},
                             {"ts", 5.0},
                             {"ph", "X"},
                             {"dur", 2.5},
                             {"pid", 1}}));
  EXPECT_EQ(events[5]["ph"], "i");
  EXPECT_EQ(events[5]["name"], "free \"h\"\xef\xbf\xbd");
  EXPECT_EQ(events[6]["ph"], "C");
  EXPECT_EQ(events[6]["args"], json({{"bytes", 12}}));
}

TEST(ChromeTrace, CollectivesMayOverlap) {
  const json file = json::parse(ChromeTrace(
      {ChromeEvents(0, {{Event::Kind::kSpan, Lane::kCollectives, "a", 1000, 4000, 64},
                        {Event::Kind::kSpan, Lane::kCollectives, "b", 2000, 5000, 64}})}));
  const json& events = file["traceEvents"];
  ASSERT_EQ(events.size(), 4u + 4);
  EXPECT_EQ(events[4]["ph"], "b");
  EXPECT_EQ(events[5]["ph"], "e");
  EXPECT_EQ(events[5]["ts"], 4.0);
  EXPECT_EQ(events[4]["id"], events[5]["id"]);
  EXPECT_NE(events[4]["id"], events[6]["id"]);
}

TEST(Recorder, KeepsNothingWhileItIsOff) {
  Recorder recorder;
  recorder.Mark(Lane::kUnits, "before");
  recorder.Start();
  { const Phase phase(&recorder, "forward"); }
  recorder.Level("gathered", 5);
  const auto events = recorder.Stop();
  recorder.Mark(Lane::kUnits, "after");
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].name, "forward");
  EXPECT_LE(events[0].begin, events[0].end);
  EXPECT_TRUE(recorder.Stop().empty());
  const Phase nothing(nullptr, "forward");
}

}  // namespace
}  // namespace muster::trace
