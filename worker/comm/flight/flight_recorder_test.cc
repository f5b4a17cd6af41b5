#include "worker/comm/flight/flight_recorder.h"

#include <string>
#include <thread>

#include "gtest/gtest.h"

namespace muster::comm {
namespace {

TEST(FlightRecorder, NumbersCollectivesFromOneAndSaysWhichHaveEnded) {
  FlightRecorder recorder;
  EXPECT_EQ(recorder.Read().begun, 0);
  EXPECT_EQ(recorder.Begin(0, "all_gather", {"roll call", 1}), 1);
  EXPECT_EQ(recorder.Begin(1, "all_reduce", {"bucket 2", 120}), 2);
  recorder.End(2);
  EXPECT_EQ(recorder.Begin(1, "all_reduce", {"bucket 1", 120}), 3);
  const auto flight = recorder.Read();
  EXPECT_EQ(flight.begun, 3);
  EXPECT_EQ(flight.ended, 1);
  ASSERT_EQ(flight.newest.size(), 3);
  EXPECT_EQ(flight.newest[0].number, 1);
  EXPECT_EQ(flight.newest[0].name, "all_gather 'roll call' step 1");
  EXPECT_FALSE(flight.newest[0].ended);
  EXPECT_EQ(flight.newest[1].name, "all_reduce 'bucket 2' step 120");
  EXPECT_TRUE(flight.newest[1].ended);
  EXPECT_EQ(flight.newest[0].channel, 0);
  EXPECT_EQ(flight.newest[0].of_channel, 1);
  EXPECT_EQ(flight.newest[2].channel, 1);
  EXPECT_EQ(flight.newest[2].of_channel, 2);
}

TEST(FlightRecorder, KeepsTheNewestOnesAndCountsAll) {
  FlightRecorder recorder;
  for (int i = 0; i < 200; ++i) recorder.Begin(0, "all_reduce", {"b", i});
  recorder.End(1);  // no longer kept
  recorder.End(137);
  const auto flight = recorder.Read();
  EXPECT_EQ(flight.begun, 200);
  EXPECT_EQ(flight.ended, 2);
  ASSERT_EQ(flight.newest.size(), FlightRecorder::kKept);
  EXPECT_EQ(flight.newest.front().number, 137);
  EXPECT_TRUE(flight.newest.front().ended);
  EXPECT_EQ(flight.newest.back().number, 200);
  EXPECT_EQ(flight.newest.back().name, "all_reduce 'b' step 199");
}

TEST(FlightRecorder, ALongLabelIsCutAndNeedNotOutliveTheCall) {
  FlightRecorder recorder;
  {
    const std::string label(1000, 'x');
    recorder.Begin(0, "broadcast", {label.c_str(), 3});
  }
  EXPECT_EQ(recorder.Read().newest[0].name, "broadcast '" + std::string(95, 'x') + "' step 3");
}

TEST(FlightRecorder, DigestsAreEqualForTheSameOperationsInTheOrderOfEachCommunicator) {
  FlightRecorder a, b, other_name, other_step, other_order, other_channel;
  a.Begin(0, "all_gather", {"roll call", 1});
  a.Begin(1, "all_reduce", {"x", 1});
  a.Begin(1, "all_reduce", {"y", 1});
  b.Begin(1, "all_reduce", {"x", 1});
  b.Begin(0, "all_gather", {"roll call", 1});
  b.Begin(1, "all_reduce", {"y", 1});
  EXPECT_EQ(a.digest().hash, b.digest().hash);
  EXPECT_EQ(a.digest().begun, 3);
  other_name.Begin(1, "all_reduce", {"x", 1});
  other_name.Begin(1, "all_reduce", {"z", 1});
  other_name.Begin(0, "all_gather", {"roll call", 1});
  EXPECT_NE(a.digest().hash, other_name.digest().hash);
  other_step.Begin(1, "all_reduce", {"x", 1});
  other_step.Begin(1, "all_reduce", {"y", 2});
  other_step.Begin(0, "all_gather", {"roll call", 1});
  EXPECT_NE(a.digest().hash, other_step.digest().hash);
  other_order.Begin(1, "all_reduce", {"y", 1});
  other_order.Begin(1, "all_reduce", {"x", 1});
  other_order.Begin(0, "all_gather", {"roll call", 1});
  EXPECT_NE(a.digest().hash, other_order.digest().hash);
  other_channel.Begin(0, "all_reduce", {"x", 1});
  other_channel.Begin(0, "all_gather", {"roll call", 1});
  other_channel.Begin(1, "all_reduce", {"y", 1});
  EXPECT_NE(a.digest().hash, other_channel.digest().hash);
}

TEST(FlightRecorder, ADigestIsTheSameWhateverAnotherThreadHasBegun) {
  FlightRecorder a, b;
  a.Begin(0, "all_gather", {"roll call", 1});
  b.Begin(FlightRecorder::kBackground, "all_gather", {"checkpoint parts", 1});
  b.Begin(0, "all_gather", {"roll call", 1});
  EXPECT_EQ(a.digest().begun, b.digest().begun);
  EXPECT_EQ(a.digest().hash, b.digest().hash);
  EXPECT_EQ(b.Read().begun, 2u) << "it tells how far the rank has come";
}

TEST(FlightRecorder, ReadsWhileAnotherThreadRecords) {
  FlightRecorder recorder;
  std::thread session([&] {
    for (int i = 0; i < 10000; ++i) recorder.End(recorder.Begin(0, "all_reduce", {"bucket", i}));
  });
  FlightRecorder::Flight flight;
  do {
    flight = recorder.Read();
    EXPECT_LE(flight.ended, flight.begun);
    if (!flight.newest.empty()) EXPECT_EQ(flight.newest.back().number, flight.begun);
  } while (flight.begun < 10000);
  session.join();
}

}  // namespace
}  // namespace muster::comm
