#include "coordinator/service/message_limits.h"

#include <gtest/gtest.h>

#include <string>

#include "coordinator/limits/limits.h"
#include "coordinator/membership/refusal.h"
#include "proto/muster/v1/control_service.pb.h"
#include "proto/muster/v1/job_service.pb.h"

namespace muster::service {
namespace {

TEST(CheckRequest, TakesWhatIsAsLongAsAllowed) {
  v1::StopJobRequest request;
  EXPECT_TRUE(CheckRequest(request).ok());
  request.set_job_id(std::string(kLimits.job_id_bytes, 'a'));
  request.set_requested_by(std::string(kLimits.requested_by_bytes, 'b'));
  request.set_request_id("123e4567-e89b-42d3-a456-426614174000");
  EXPECT_TRUE(CheckRequest(request).ok());
  request.set_request_id("123E4567-E89B-42D3-A456-426614174000");
  EXPECT_TRUE(CheckRequest(request).ok());
}

TEST(CheckRequest, AListHasALimitAndItsElementsHaveTheirs) {
  v1::SetTrainabilityRequest request;
  for (int i = 0; i < kLimits.list_elements; ++i) request.add_rules();
  EXPECT_TRUE(CheckRequest(request).ok());
  request.mutable_rules(7)->set_unfreeze(std::string(501, 'x'));
  absl::Status refused = CheckRequest(request);
  EXPECT_EQ(RefusalReason(refused), "FIELD_TOO_LONG");
  EXPECT_EQ(AboutOf(refused)["field"], "rules[7].unfreeze");
  EXPECT_EQ(AboutOf(refused)["limit"], "500");
  request.add_rules();
  refused = CheckRequest(request);
  EXPECT_EQ(AboutOf(refused)["field"], "rules");
  EXPECT_EQ(AboutOf(refused)["found"], "4097");
}

TEST(CheckRequest, AJobHasRulesOfItsOwnAndAPromptTheSizeOfTheRequest) {
  v1::SubmitJobRequest submit;
  submit.mutable_spec()->set_name(std::string(100000, 'n'));
  EXPECT_TRUE(CheckRequest(submit).ok());
  v1::SampleRequest sample;
  sample.set_text(std::string(100000, 't'));
  sample.mutable_tokens()->Resize(100000, 1);
  EXPECT_TRUE(CheckRequest(sample).ok());
}

}  // namespace
}  // namespace muster::service
