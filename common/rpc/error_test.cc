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
  EXPECT_EQ(ErrorMetadata(back)["job"], "a");
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

// The bytes of both trailers as sent: grpc-message percent-encoded, the details in base64.
size_t TrailerBytes(const grpc::Status& status) {
  size_t bytes = status.error_details().size() * 4 / 3;
  for (const char c : status.error_message()) bytes += c >= ' ' && c <= '~' && c != '%' ? 1 : 3;
  return bytes;
}

TEST(Error, WhatIsTooLongForTheTrailersIsCutWithAMark) {
  for (const std::string one : {"x", "%", "\u00e4", "\U0001f600"}) {
    std::string text;
    while (text.size() < 100000) text += one;
    const absl::Status error =
        MakeError(absl::StatusCode::kNotFound, "R", text, {{"a", text}, {"b", text}});
    const grpc::Status sent = ToGrpc(error);
    EXPECT_LT(TrailerBytes(sent), 8000u - 2000u) << one << ": SpecProblems need room, too";
    const absl::Status back = FromGrpc(sent);
    EXPECT_EQ(ErrorReason(back), "R");
    EXPECT_TRUE(ErrorMetadata(back)["b"].ends_with(" more bytes]")) << one;
    const std::string message(back.message());
    EXPECT_TRUE(message.ends_with(" more bytes]")) << one;
    EXPECT_EQ(message.find(one), 0u) << "it begins as before";
  }
}

}  // namespace
}  // namespace muster
