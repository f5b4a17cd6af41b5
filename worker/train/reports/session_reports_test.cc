#include "worker/train/reports/session_reports.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace muster::train {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class Sink : public EventSink {
 public:
  void Report(const Event& event) override {
    if (const auto* exported = std::get_if<Exported>(&event)) told_.push_back(exported->path);
  }
  void Progress(int64_t step, const char* stage, const char* doing) override {
    told_.push_back(std::to_string(step) + " " + stage + " " + doing);
  }
  std::vector<std::string> told_;
};

TEST(SessionReports, WhatIsTheSameOnAllRanksIsToldByOneOfThem) {
  Sink first, second;
  const SessionState session_state;
  const SessionReports leader(0, &first, &session_state), other(1, &second, &session_state);
  leader.Report(Exported{"a"});
  other.Report(Exported{"a"});
  EXPECT_THAT(first.told_, ElementsAre("a"));
  EXPECT_THAT(second.told_, IsEmpty());
  other.ReportOfRank(Exported{"b"});
  EXPECT_THAT(second.told_, ElementsAre("b"));
}

TEST(SessionReports, EachRankTellsWhereItStandsNow) {
  Sink sink;
  SessionState session_state;
  const SessionReports reports(3, &sink, &session_state);
  session_state.step = 7;
  session_state.stage = "fit";
  reports.Progress("training");
  EXPECT_THAT(sink.told_, ElementsAre("7 fit training"));
}

}  // namespace
}  // namespace muster::train
