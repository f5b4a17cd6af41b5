#include "coordinator/service/message_limits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "common/utf8/utf8.h"
#include "coordinator/limits/limits.h"
#include "coordinator/membership/refusal.h"
#include "proto/muster/v1/agent_service.pb.h"
#include "proto/muster/v1/worker_service.pb.h"

namespace muster::service {
namespace {

using testing::EndsWith;
using testing::StartsWith;

TEST(LimitTexts, ATextForPeopleIsCutWithAMark) {
  v1::WorkerMessage message;
  auto* failure = message.mutable_report()->mutable_failure();
  failure->set_reason(std::string(kLimits.report_text_bytes + 10, 'x'));
  ASSERT_TRUE(LimitTexts(&message).ok());
  EXPECT_THAT(failure->reason(), EndsWith("xxx [10 more bytes]"));
  auto* notice = message.mutable_report()->mutable_notice();
  notice->set_message(std::string(kLimits.report_text_bytes, 'y'));
  ASSERT_TRUE(LimitTexts(&message).ok());
  EXPECT_EQ(notice->message(), std::string(kLimits.report_text_bytes, 'y')) << "as long as allowed";
}

// Returns a text above the limit, of characters of three bytes.
std::string Longer(size_t limit) {
  std::string text;
  while (text.size() <= limit) text += "\u20ac";
  return text;
}

TEST(LimitTexts, ItIsNotCutWithinACharacter) {
  v1::AgentMessage message;
  message.mutable_worker_log()->add_lines("short");
  message.mutable_worker_log()->add_lines(Longer(kLimits.log_line_bytes));
  ASSERT_TRUE(LimitTexts(&message).ok());
  const std::string& cut = message.worker_log().lines(1);
  EXPECT_EQ(ValidUtf8(cut), cut);
  EXPECT_THAT(cut, EndsWith(" more bytes]"));
  EXPECT_EQ(message.worker_log().lines(0), "short");
}

TEST(LimitTexts, OfALogTailTheEndStays) {
  v1::WorkerExit exit;
  exit.set_log_tail(Longer(kLimits.log_tail_bytes) + "the end");
  ASSERT_TRUE(LimitTexts(&exit).ok());
  EXPECT_EQ(ValidUtf8(exit.log_tail()), exit.log_tail());
  EXPECT_THAT(exit.log_tail(), StartsWith("["));
  EXPECT_THAT(exit.log_tail(), EndsWith("the end"));
  EXPECT_LT(exit.log_tail().size(), kLimits.log_tail_bytes + 40);
}

TEST(LimitTexts, ATextForProgramsIsRefusedByName) {
  v1::AgentMessage message;
  message.mutable_hello()->set_node(std::string(256, 'n'));
  const absl::Status refused = LimitTexts(&message);
  EXPECT_EQ(RefusalReason(refused), "FIELD_TOO_LONG");
  EXPECT_EQ(AboutOf(refused)["field"], "muster.v1.AgentHello.node");
  EXPECT_EQ(AboutOf(refused)["limit"], "255");
  EXPECT_LT(refused.message().size(), 200u) << "it does not repeat the text";
  message.mutable_hello()->set_node(std::string(255, 'n'));
  EXPECT_TRUE(LimitTexts(&message).ok());
  v1::WorkerMessage written;
  written.mutable_report()->mutable_checkpoint_written()->set_path(std::string(4096, '/'));
  EXPECT_EQ(RefusalReason(LimitTexts(&written)), "FIELD_TOO_LONG");
}

TEST(LimitTexts, BytesAreNoText) {
  v1::AgentMessage message;
  const std::string report(1 << 20, '\xff');
  message.mutable_spooled_reports()->add_reports(report);
  ASSERT_TRUE(LimitTexts(&message).ok());
  EXPECT_EQ(message.spooled_reports().reports(0), report);
}

}  // namespace
}  // namespace muster::service
