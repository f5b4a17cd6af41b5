#include "coordinator/service/sample_command.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <string>

#include "coordinator/membership/refusal.h"

namespace muster::service {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

template <typename Message>
Message Parse(const std::string& text) {
  Message message;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &message)) << text;
  return message;
}

constexpr char kBytes[] = "gpt2 { vocab_size: 256 context: 100 } tokenizer: BYTES";
constexpr char kIds[] = "llama { vocab_size: 29 context: 8 }";

absl::StatusOr<v1::SampleCommand> Sample(const std::string& request, const std::string& model) {
  return SampleCommandOf(Parse<v1::SampleRequest>(request), Parse<v1::ModelSpec>(model), "job");
}

TEST(SampleCommand, ATextBecomesTokensWhereTheModelHasATokenizer) {
  const auto sample = Sample("text: 'aé'", kBytes);
  ASSERT_TRUE(sample.ok()) << sample.status();
  EXPECT_THAT(sample->tokens(), ElementsAre(97, 0xc3, 0xa9));
  EXPECT_EQ(sample->max_tokens(), 64u);
  EXPECT_THAT(Sample("tokens: [1, 2]", kBytes)->tokens(), ElementsAre(1, 2))
      << "tokens are taken in any case";
}

TEST(SampleCommand, WithoutANumberOfNewTokensAsManyAsFitAreMade) {
  EXPECT_EQ(Sample("tokens: [1, 2, 3]", kIds)->max_tokens(), 5u);
  EXPECT_EQ(Sample("tokens: [1, 2, 3] max_tokens: 4", kIds)->max_tokens(), 4u);
  EXPECT_EQ(Sample("tokens: [1, 2, 3] max_tokens: 5", kIds)->max_tokens(), 5u);
}

TEST(SampleCommand, TheWorkersFitThePromptOfAnExportedModelIntoItsContext) {
  const auto usual = Sample("tokens: [1, 2, 300]", "exported: '/m'");
  ASSERT_TRUE(usual.ok()) << usual.status();
  EXPECT_EQ(usual->max_tokens(), 0u);
  EXPECT_EQ(usual->usual_tokens(), 64u);
  const auto given = Sample("tokens: 1 max_tokens: 5", "exported: '/m'");
  EXPECT_EQ(given->max_tokens(), 5u);
  EXPECT_EQ(given->usual_tokens(), 0u);
  EXPECT_THAT(std::string(Sample("", "exported: '/m'").status().message()),
              HasSubstr("the prompt is empty"));
}

TEST(SampleCommand, TheWorkersMakeTokensOfATextForAModelFromAFolder) {
  for (const char* model : {"hf: '/m'", "exported: '/m'"}) {
    const auto sample = Sample("text: 'Once'", model);
    ASSERT_TRUE(sample.ok()) << sample.status();
    EXPECT_EQ(sample->text(), "Once");
    EXPECT_EQ(sample->usual_tokens(), 64u);
    EXPECT_THAT(sample->tokens(), ::testing::IsEmpty());
  }
  const auto bytes = Sample("text: 'a'", "hf: '/m' tokenizer: BYTES");
  EXPECT_THAT(bytes->tokens(), ElementsAre(97));
  EXPECT_EQ(bytes->text(), "");
}

TEST(SampleCommand, KeepsItsSettings) {
  const auto drawn = Sample("tokens: 1 temperature: 0.5 top_k: 3 seed: 18446744073709551615", kIds);
  ASSERT_TRUE(drawn.ok()) << drawn.status();
  EXPECT_EQ(drawn->temperature(), 0.5);
  EXPECT_EQ(drawn->top_k(), 3u);
  EXPECT_EQ(drawn->seed(), 18446744073709551615u);
  const auto greedy = Sample("tokens: 1", kIds);
  EXPECT_FALSE(greedy->has_temperature());
  EXPECT_FALSE(greedy->has_top_k());
}

struct Refused {
  const char* request;
  const char* model;
  const char* reason;
  const char* message;
};

TEST(SampleCommand, RefusesWhatNoModelCanContinue) {
  for (const Refused& refused : {
           Refused{"text: 'a'", kIds, "NO_TOKENIZER", "expected token ids, such as"},
           Refused{"", kBytes, "SAMPLE_INVALID", "the prompt is empty"},
           Refused{"text: 'a' tokens: 1", kBytes, "SAMPLE_INVALID", "found a text and tokens"},
           Refused{"tokens: [1, 29]", kIds, "SAMPLE_INVALID",
                   "token 1 of the prompt is 29; expected 0 to 28"},
           Refused{"tokens: [1, 2, 3] max_tokens: 6", kIds, "SAMPLE_INVALID",
                   "the prompt has 3 tokens, and max_tokens is 6; expected at most 8"},
           Refused{"tokens: 1 max_tokens: 4294967295", kIds, "SAMPLE_INVALID", "at most 8"},
           Refused{"tokens: [1, 1, 1, 1, 1, 1, 1, 1]", kIds, "SAMPLE_INVALID",
                   "the prompt has 8 tokens, and max_tokens is 1"},
           Refused{"tokens: 1 temperature: 0", kIds, "SAMPLE_INVALID", "temperature is 0"},
           Refused{"tokens: 1 temperature: nan", kIds, "SAMPLE_INVALID", "temperature is nan"},
           Refused{"tokens: 1 temperature: inf", kIds, "SAMPLE_INVALID", "temperature is inf"},
           Refused{"tokens: 1 temperature: 1 top_k: 0", kIds, "SAMPLE_INVALID", "top_k is 0"},
           Refused{"tokens: 1 top_k: 2", kIds, "SAMPLE_INVALID", "without temperature"},
       }) {
    const absl::Status status = Sample(refused.request, refused.model).status();
    EXPECT_EQ(RefusalReason(status), refused.reason) << refused.request;
    EXPECT_THAT(std::string(status.message()), HasSubstr(refused.message)) << refused.request;
  }
}

}  // namespace
}  // namespace muster::service
