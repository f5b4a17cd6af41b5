#include "coordinator/webhook/answer_head.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace muster::webhook {
namespace {

using testing::HasSubstr;

TEST(AnswerHead, IsCompleteWithItsEmptyLineHoweverItArrives) {
  const std::string head =
      "HTTP/1.1 503 Later\r\ncontent-length: 4\r\nRETRY-AFTER:  7 \r\nRetry-After: 8\r\n\r\n";
  for (size_t cut = 0; cut <= head.size(); ++cut) {
    AnswerHead answer;
    ASSERT_TRUE(answer.Take(head.substr(0, cut)).ok());
    EXPECT_EQ(answer.complete(), cut == head.size());
    ASSERT_TRUE(answer.Take(head.substr(cut) + "bo").ok());
    EXPECT_TRUE(answer.complete());
    EXPECT_EQ(answer.status(), 503);
    EXPECT_EQ(answer.retry_after(), "7");
    EXPECT_EQ(answer.content_length(), 4);
    EXPECT_EQ(answer.taken_of_body(), 2);
  }
}

TEST(AnswerHead, NeedsNeitherAReasonNorHeadersNorCarriageReturns) {
  for (const char* head :
       {"HTTP/1.0 200\r\n\r\n", "HTTP/1.1 200 \n\n", "HTTP/1.1 200 A: b\n\r\n"}) {
    AnswerHead answer;
    EXPECT_TRUE(answer.Take(head).ok());
    EXPECT_TRUE(answer.complete()) << head;
    EXPECT_EQ(answer.status(), 200);
    EXPECT_EQ(answer.retry_after(), "");
    EXPECT_EQ(answer.content_length(), std::nullopt);
  }
}

TEST(AnswerHead, SkipsInterimAnswers) {
  AnswerHead answer;
  EXPECT_TRUE(answer
                  .Take("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\nRetry-After: 1\r\n"
                        "Content-Length: 1\r\n\r\n")
                  .ok());
  EXPECT_FALSE(answer.complete());
  EXPECT_TRUE(answer.Take("HTTP/1.1 200 OK\r\n\r\n").ok());
  EXPECT_TRUE(answer.complete());
  EXPECT_EQ(answer.status(), 200);
  EXPECT_EQ(answer.retry_after(), "");
  EXPECT_EQ(answer.content_length(), std::nullopt);
}

TEST(AnswerHead, SomeAnswersNeverHaveABody) {
  AnswerHead answer;
  EXPECT_TRUE(answer.Take("HTTP/1.1 204 No Content\r\nContent-Length: 9\r\n\r\n").ok());
  EXPECT_EQ(answer.content_length(), 0);
}

TEST(AnswerHead, AnythingElseIsNoAnswer) {
  for (const std::string line :
       {std::string(), std::string("220 smtp ready"), std::string("\0\xff", 2),
        std::string("HTTP/2 200 OK"), std::string("HTTP/1.1 20x OK"), std::string("HTTP/1.1 2000"),
        std::string("HTTP/1.1 099 OK"), std::string("HTTP/1.x 200 OK"),
        std::string("HTTP/1.1  200"), std::string("HTTP/1.1 20"), std::string("http/1.1 200 OK")}) {
    EXPECT_THAT(AnswerHead().Take(line + "\r\n").message(), HasSubstr("its first line is not"))
        << line;
  }
}

TEST(AnswerHead, IsKeptUpToALimitWhateverItsLinesAre) {
  const std::string start = "HTTP/1.1 200 ";
  for (const std::string& endless :
       {std::string(AnswerHead::kMostBytes, 'x'), start + std::string(2 << 20, 'x'),
        start + std::string(100'000, 'x') + "\r\n\r\n",
        start + "\r\nX: " + std::string(2 << 20, 'x'),
        start + "\r\n" + std::string(AnswerHead::kMostBytes, '\r') + "\n"}) {
    AnswerHead answer;
    absl::Status status;
    size_t taken = 0;
    for (; status.ok() && taken < endless.size(); ++taken)
      status = answer.Take(endless.substr(taken, 1));
    if (status.ok()) status = answer.Take("x");
    EXPECT_THAT(status.message(), HasSubstr("more than 16384 bytes"));
    EXPECT_LE(taken, AnswerHead::kMostBytes + 1);
    EXPECT_THAT(AnswerHead().Take(endless + "x").message(), HasSubstr("more than 16384 bytes"));
    EXPECT_FALSE(answer.complete());
  }
  AnswerHead longest;
  const std::string end = "\r\n\r\n";
  const size_t rest = AnswerHead::kMostBytes - start.size() - end.size();
  EXPECT_TRUE(longest.Take(start + std::string(rest, 'x') + end).ok());
  EXPECT_TRUE(longest.complete());
}

}  // namespace
}  // namespace muster::webhook
