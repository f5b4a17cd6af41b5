#include "worker/control/session_heartbeat.h"

#include <google/protobuf/text_format.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

namespace muster::control {
namespace {

TEST(MemoryReport, HasEachPurposeInItsField) {
  memory::Usage usage;
  usage.total = {21, 100};
  for (uint64_t i = 0; i < memory::kPurposes; ++i) usage.by_purpose[i] = {i, 10 + i};
  v1::RankMemory expected;
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(R"(
    total { bytes: 21 peak_bytes: 100 }
    other { bytes: 0 peak_bytes: 10 }
    parameters { bytes: 1 peak_bytes: 11 }
    gradients { bytes: 2 peak_bytes: 12 }
    moments { bytes: 3 peak_bytes: 13 }
    buckets { bytes: 4 peak_bytes: 14 }
    activations { bytes: 5 peak_bytes: 15 }
    gathered { bytes: 6 peak_bytes: 16 }
    resident_bytes: 1000)",
                                                            &expected));
  const v1::RankMemory report = MemoryReport(usage, 1000);
  EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(report, expected))
      << report.ShortDebugString();
}

}  // namespace
}  // namespace muster::control
