#include "coordinator/service/request.h"

#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <string>

#include "coordinator/membership/refusal.h"

namespace muster::service {
namespace {

// Returns the reason why a job with this file refuses the command; empty if it does not refuse.
std::string Refusal(const std::string& text, v1::Operation::Kind kind) {
  v1::JobSpec spec;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &spec));
  jobs::Job job;
  job.id = "job";
  job.spec = spec.SerializeAsString();
  return std::string(RefusalReason(CheckNeeds(job, kind)));
}

TEST(CheckNeeds, RefusesWhatTheJobFileHasNot) {
  using Operation = v1::Operation;
  for (const auto kind :
       {Operation::SET_TRAINABILITY, Operation::PLAN_TRAINABILITY, Operation::REFRESH,
        Operation::SET_LEARNING_RATE, Operation::GATHER_OPTIMIZER_STATE, Operation::CONSOLIDATE}) {
    EXPECT_EQ(Refusal("", kind), "NO_OPTIMIZER") << kind;
    EXPECT_EQ(Refusal("optimizer {}", kind), "") << kind;
  }
  EXPECT_EQ(Refusal("optimizer {}", Operation::SAVE_CHECKPOINT), "NO_CHECKPOINTS");
  EXPECT_EQ(Refusal("checkpoint {} optimizer {}", Operation::SAVE_CHECKPOINT), "");
  EXPECT_EQ(Refusal("model { mlp {} }", Operation::SAMPLE), "CANNOT_GENERATE");
  EXPECT_EQ(Refusal("model { gpt2 {} }", Operation::SAMPLE), "");
  EXPECT_EQ(Refusal("model { llama {} }", Operation::SAMPLE), "");
  for (const auto kind : {Operation::STOP, Operation::PAUSE, Operation::RESUME,
                          Operation::RUN_STAGE, Operation::CANCEL}) {
    EXPECT_EQ(Refusal("", kind), "") << kind;
  }
}

}  // namespace
}  // namespace muster::service
