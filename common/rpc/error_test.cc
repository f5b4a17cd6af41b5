#include "common/rpc/error.h"

#include <gtest/gtest.h>

namespace muster {
namespace {

TEST(Error, CodeMessageReasonAndProblemsSurviveTheTrip) {
  absl::Status error =
      MakeError(absl::StatusCode::kNotFound, "JOB_NOT_FOUND", "no job 'a'", {{"job", "a"}});
  v1::SpecProblems problems;
  problems.add_problems()->set_path("model.gpt2");
  AttachProblems(&error, problems);

  const absl::Status back = FromGrpc(ToGrpc(error));
  EXPECT_EQ(back, error);
  EXPECT_EQ(ErrorReason(back), "JOB_NOT_FOUND");
  ASSERT_EQ(Problems(back).problems_size(), 1);
  EXPECT_EQ(Problems(back).problems(0).path(), "model.gpt2");
}

TEST(Error, WithoutDetailsThereIsNoReason) {
  const absl::Status back = FromGrpc(ToGrpc(absl::InternalError("x")));
  EXPECT_EQ(back, absl::InternalError("x"));
  EXPECT_EQ(ErrorReason(back), "");
  EXPECT_TRUE(FromGrpc(ToGrpc(absl::OkStatus())).ok());
}

TEST(Error, UnreadableDetailsAreDropped) {
  const absl::Status back =
      FromGrpc(grpc::Status(grpc::StatusCode::ABORTED, "m", "\xff\xff not a message"));
  EXPECT_EQ(back, absl::AbortedError("m"));
}

}  // namespace
}  // namespace muster
