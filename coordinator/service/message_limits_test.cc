#include "coordinator/service/message_limits.h"

#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <gtest/gtest.h>

#include <string>

#include "coordinator/membership/refusal.h"
#include "proto/muster/v1/job_service.pb.h"

namespace muster::service {
namespace {

absl::Status Check(const std::string& bytes, const MostParts& most) {
  google::protobuf::io::ArrayInputStream stream(bytes.data(), static_cast<int>(bytes.size()));
  return CheckParts(&stream, *v1::ValidateJobRequest::descriptor(), most);
}

TEST(MessageLimits, MessagesAreCountedAtEachDepth) {
  v1::ValidateJobRequest request;
  auto* optimizer = request.mutable_spec()->mutable_optimizer();
  for (int i = 0; i < 8; ++i) optimizer->add_groups();
  const std::string bytes = request.SerializeAsString();
  // The 10 messages are the job, its optimizer, and the groups.
  EXPECT_TRUE(Check(bytes, {.messages = 10, .texts = 0}).ok());
  const absl::Status refused = Check(bytes, {.messages = 9, .texts = 0});
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(RefusalReason(refused), "TOO_MANY_PARTS");
  EXPECT_EQ(AboutOf(refused)["limit"], "9");
}

TEST(MessageLimits, TextsAndFieldsThatNobodyKnowsAreCountedAndNumbersAreNot) {
  v1::ValidateJobRequest request;
  auto* spec = request.mutable_spec();
  for (int i = 0; i < 5; ++i) {
    spec->mutable_data()->mutable_train()->mutable_safetensors()->add_path("");
  }
  for (int i = 0; i < 1000; ++i) spec->mutable_model()->mutable_mlp()->add_hidden(0);
  const MostParts many{.messages = 100, .texts = 5};
  EXPECT_TRUE(Check(request.SerializeAsString(), many).ok());
  EXPECT_FALSE(Check(request.SerializeAsString(), {.messages = 100, .texts = 4}).ok());
  auto* unknown = request.GetReflection()->MutableUnknownFields(&request);
  unknown->AddVarint(1000, 1);
  EXPECT_FALSE(Check(request.SerializeAsString(), many).ok());
  EXPECT_TRUE(Check(request.SerializeAsString(), {.messages = 100, .texts = 6}).ok());
}

TEST(MessageLimits, WhatIsNoMessageIsLeftToTheParser) {
  v1::ValidateJobRequest request;
  request.mutable_spec()->mutable_optimizer()->add_groups();
  const std::string bytes = request.SerializeAsString();
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_TRUE(Check(bytes.substr(0, size), {.messages = 3, .texts = 3}).ok()) << size;
  }
  for (const std::string bad : {"\xff\xff\xff", "\x0a\xff\xff\xff\xff\x0f", "\x0b", "\x0c"}) {
    EXPECT_TRUE(Check(bad, {.messages = 3, .texts = 3}).ok());
  }
}

}  // namespace
}  // namespace muster::service
