#include "worker/data/tokens/token_dataset.h"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "ATen/core/Tensor.h"
#include "ATen/ops/tensor.h"
#include "absl/strings/str_cat.h"
#include "common/activity/activity.h"
#include "common/files/files.h"
#include "common/files/temp_dir.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr InputSpec kSpec{.kind = InputSpec::Kind::kTokens, .vocab_size = 1000, .context = 3};

class TokenDatasetTest : public ::testing::Test {
 protected:
  template <typename Token>
  std::string File(const std::string& name, const std::vector<Token>& tokens, size_t cut = 0) {
    const std::string bytes(reinterpret_cast<const char*>(tokens.data()),
                            tokens.size() * sizeof(Token) - cut);
    EXPECT_TRUE(files::WriteAtomically(dir_.Path(name), bytes).ok());
    return dir_.Path(name);
  }

  std::string Counting(const std::string& name, int count, uint16_t first) {
    std::vector<uint16_t> tokens(count);
    std::iota(tokens.begin(), tokens.end(), first);
    return File(name, tokens);
  }

  static std::vector<int64_t> Flat(const at::Tensor& tensor) {
    return {tensor.data_ptr<int64_t>(), tensor.data_ptr<int64_t>() + tensor.numel()};
  }

  // The error of opening or, after success, of Check.
  static std::string ErrorOf(const std::vector<std::string>& paths,
                             TokenType type = TokenType::kUint16, const InputSpec& spec = kSpec) {
    const auto dataset = OpenTokens(paths, type, spec);
    const absl::Status status = dataset.ok() ? (*dataset)->Check({}) : dataset.status();
    EXPECT_FALSE(status.ok());
    return std::string(status.message());
  }

  files::TempDir dir_;
};

TEST_F(TokenDatasetTest, TheVocabularyGivesTheTypeOfTokensIfTheJobDoesNot) {
  const std::string narrow = File<uint16_t>("narrow", {1, 2, 3, 4});
  const std::string wide = File<uint32_t>("wide", {1, 70000, 3, 4});
  InputSpec spec = kSpec;
  for (const auto& [vocabulary, path, second] :
       {std::tuple(65536, narrow, 2), std::tuple(70001, wide, 70000)}) {
    spec.vocab_size = vocabulary;
    const auto dataset = OpenTokens({path}, std::nullopt, spec);
    ASSERT_TRUE(dataset.ok()) << dataset.status();
    ASSERT_TRUE((*dataset)->Check({}).ok());
    EXPECT_THAT(Flat((*dataset)->Read(std::vector<int64_t>{0})->inputs), ElementsAre(1, second, 3));
  }
}

TEST_F(TokenDatasetTest, SamplesFollowOneAnotherAndCrossNoFile) {
  // 8 tokens: (8-1)/3 = 2 samples; 3 tokens: none; 4 tokens: exactly one.
  const auto dataset =
      OpenTokens({Counting("a", 8, 0), Counting("b", 3, 100), Counting("c", 4, 200)},
                 TokenType::kUint16, kSpec);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->size(), 3);
  const std::vector<int64_t> samples = {2, 0, 1};
  const auto batch = (*dataset)->Read(samples);
  ASSERT_TRUE(batch.ok());
  EXPECT_EQ(batch->inputs.sizes(), (at::IntArrayRef{3, 3}));
  EXPECT_THAT(Flat(batch->inputs), ElementsAre(200, 201, 202, 0, 1, 2, 3, 4, 5));
  EXPECT_THAT(Flat(batch->targets), ElementsAre(201, 202, 203, 1, 2, 3, 4, 5, 6));
}

TEST_F(TokenDatasetTest, Uint32TokensAreRead) {
  const InputSpec spec{.kind = InputSpec::Kind::kTokens, .vocab_size = 100000, .context = 1};
  const auto dataset =
      OpenTokens({File<uint32_t>("a", {70000, 5, 99999})}, TokenType::kUint32, spec);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  const std::vector<int64_t> samples = {0, 1};
  EXPECT_THAT(Flat((*dataset)->Read(samples)->targets), ElementsAre(5, 99999));
  EXPECT_THAT(Flat((*dataset)->Read(samples)->inputs), ElementsAre(70000, 5));
}

TEST_F(TokenDatasetTest, TruncatedFileIsNamed) {
  const std::string path = File<uint16_t>("a", {1, 2, 3, 4, 5}, 1);
  EXPECT_EQ(ErrorOf({path}),
            path + ": truncated: expected a multiple of 2 bytes (uint16 tokens), found 9");
  EXPECT_THAT(ErrorOf({File<uint16_t>("b", {1, 2, 3})}, TokenType::kUint32),
              HasSubstr("multiple of 4 bytes"));
}

TEST_F(TokenDatasetTest, TokenBeyondTheVocabularyIsLocatedWhereverItIs) {
  for (size_t at : {size_t{0}, size_t{17}, size_t{65536}, size_t{199999}}) {
    std::vector<uint16_t> tokens(200000, 999);
    tokens[at] = 1000;
    tokens.back() = 60000;
    const std::string path = File("a", tokens);
    EXPECT_EQ(ErrorOf({path}), path + ": token " + std::to_string(tokens[at]) + " at byte offset " +
                                   std::to_string(2 * at) + " (index " + std::to_string(at) +
                                   ") is beyond the model's vocabulary of 1000");
  }
  EXPECT_THAT(ErrorOf({File<uint32_t>("b", {1, 4294967295u, 2, 3})}, TokenType::kUint32),
              HasSubstr("token 4294967295 at byte offset 4"));
}

TEST_F(TokenDatasetTest, EachPartIsCheckedByItself) {
  // The data are 200000 tokens in three files; the last token of the second file is wrong.
  std::vector<uint16_t> tokens(70000, 5);
  const std::string a = File("a", tokens);
  tokens.resize(60001);
  tokens.back() = 1000;
  const std::string b = File("b", tokens);
  const std::string c = File("c", std::vector<uint16_t>(69999, 5));
  const auto dataset = OpenTokens({a, b, c}, TokenType::kUint16, kSpec);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  activity::Activity activity;
  const activity::Scope scope(&activity);
  for (int64_t index = 0; index < 4; ++index) {
    const absl::Status status = (*dataset)->Check({index, 4});
    if (index == 2) {
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
      EXPECT_THAT(std::string(status.message()),
                  HasSubstr(b + ": token 1000 at byte offset 120000"));
    } else {
      EXPECT_TRUE(status.ok()) << index << ": " << status;
    }
  }
  // The blocks have 65536 tokens: one block in the first part, two in the second (of two files),
  // and so on.
  EXPECT_EQ(activity.count(), 1u + 2u + 1u + 1u);
}

TEST_F(TokenDatasetTest, AFileOfAnotherKindIsNamed) {
  std::string header(1024, '\0');
  header[0] = '\x88', header[1] = '\xd8', header[2] = '\x34', header[3] = '\x01', header[4] = 1;
  EXPECT_TRUE(files::WriteAtomically(dir_.Path("a"), header + std::string(100, 'x')).ok());
  const InputSpec all{.kind = InputSpec::Kind::kTokens, .vocab_size = 65536, .context = 3};
  EXPECT_THAT(ErrorOf({dir_.Path("a")}, TokenType::kUint16, all),
              HasSubstr("a: expected token numbers, found a token file of llm.c"));
}

TEST_F(TokenDatasetTest, FilesThatAreTooShortForASampleAreNotedTogether) {
  const std::string good = File("good", std::vector<uint16_t>(4, 1));
  const std::string a = File("a", std::vector<uint16_t>(3, 1));
  const std::string b = File("b", std::vector<uint16_t>(2, 1));
  const InputSpec spec{.kind = InputSpec::Kind::kTokens, .vocab_size = 100, .context = 3};
  const auto dataset = OpenTokens({good, a, b}, TokenType::kUint16, spec);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->size(), 1);
  ASSERT_EQ((*dataset)->notes().size(), 1u);
  EXPECT_THAT((*dataset)->notes()[0].text,
              HasSubstr(a + " and 1 more: fewer than 4 tokens, the context and one more"));
}

TEST_F(TokenDatasetTest, AnotherWidthIsNotedWhereTheVocabularyHidesItAndNamedWhereItDoesNot) {
  std::vector<uint32_t> tokens(1000);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<uint32_t>(i * 37 % 900);
  const std::string wide = File("wide", tokens);
  const auto dataset = OpenTokens({wide}, TokenType::kUint16, kSpec);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  ASSERT_EQ((*dataset)->notes().size(), 1u);
  EXPECT_THAT((*dataset)->notes()[0].text, HasSubstr(wide + ": every second token is 0"));
  EXPECT_TRUE((*OpenTokens({wide}, TokenType::kUint32, kSpec))->notes().empty());
  EXPECT_THAT(ErrorOf({File("narrow", std::vector<uint16_t>(tokens.begin(), tokens.end()))},
                      TokenType::kUint32),
              HasSubstr("is beyond the model's vocabulary of 1000; the first 1000 would be below "
                        "it with 2 bytes each: 'dtype: uint16' reads them"));
}

TEST_F(TokenDatasetTest, ATokenThatIsInNoSampleIsCheckedToo) {
  // The file has one sample of four tokens, and an unused token.
  EXPECT_THAT(ErrorOf({File<uint16_t>("a", {1, 2, 3, 4, 1000})}), HasSubstr("(index 4)"));
}

TEST_F(TokenDatasetTest, FilesWithoutASampleAreRefused) {
  EXPECT_THAT(
      ErrorOf({Counting("a", 3, 0), Counting("b", 2, 0)}),
      HasSubstr("a and 1 more: too short: one sample takes 4 tokens (context + 1), found 5"));
  EXPECT_THAT(ErrorOf({Counting("c", 0, 0)}), HasSubstr("found 0"));
  EXPECT_THAT(ErrorOf({}), HasSubstr("at least one path"));
}

TEST_F(TokenDatasetTest, TokensFillTheInputsOfAModelThatReturnsItsLoss) {
  const models::InputArray tokens = {.name = "input_ids", .type = at::kLong, .shape = {3}};
  const models::InputArray labels = {.name = "labels", .type = at::kLong, .shape = {3}};
  InputSpec spec = {.kind = InputSpec::Kind::kArrays,
                    .vocab_size = 1000,
                    .context = 3,
                    .arrays = {labels, tokens},
                    .own_loss = true,
                    .counted = models::CountedInput{.input = 0, .first = 1}};
  const std::string path = Counting("a", 8, 0);
  const std::vector<int64_t> second = {1};
  const at::Tensor inputs = at::tensor({3, 4, 5}, at::kLong).view({1, 3});
  const at::Tensor shifted = at::tensor({4, 5, 6}, at::kLong).view({1, 3});

  // The model shifts its targets, so they are the tokens.
  auto batch = (*OpenTokens({path}, TokenType::kUint16, spec))->Read(second);
  ASSERT_TRUE(batch.ok()) << batch.status();
  EXPECT_TRUE(batch->inputs.equal(inputs));
  EXPECT_TRUE(batch->further.at(0).equal(inputs));
  EXPECT_TRUE(batch->targets.equal(inputs.slice(1, 1)));

  spec.counted->first = 0;
  batch = (*OpenTokens({path}, TokenType::kUint16, spec))->Read(second);
  EXPECT_TRUE(batch->inputs.equal(shifted));
  EXPECT_TRUE(batch->further.at(0).equal(inputs));
  EXPECT_TRUE(batch->targets.equal(shifted));

  spec.vocab_size = 0;
  EXPECT_THAT(ErrorOf({path}, TokenType::kUint16, spec), HasSubstr("takes its inputs by name"));
}

TEST_F(TokenDatasetTest, MissingFileAndWrongModelAreRefused) {
  EXPECT_EQ(OpenTokens({dir_.Path("none")}, TokenType::kUint16, kSpec).status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_THAT(ErrorOf({Counting("a", 9, 0)}, TokenType::kUint16,
                      {.kind = InputSpec::Kind::kRows, .row_elements = 1, .classes = 1}),
              HasSubstr("the model takes rows"));
}

TEST_F(TokenDatasetTest, SampleOutsideIsOutOfRange) {
  const auto dataset = OpenTokens({Counting("a", 8, 0)}, TokenType::kUint16, kSpec);
  for (int64_t sample : {-1, 2}) {
    const std::vector<int64_t> samples = {sample};
    EXPECT_EQ((*dataset)->Read(samples).status().code(), absl::StatusCode::kOutOfRange);
  }
}

TEST_F(TokenDatasetTest, AFileThatChangesInUseIsNamed) {
  const std::string path = Counting("a", 8, 0);
  const auto dataset = OpenTokens({path}, TokenType::kUint16, kSpec);
  const std::vector<int64_t> first = {0};
  const std::vector<int64_t> both = {0, 1};
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(2 * 5).write("\xff\xff", 2).flush();
  EXPECT_TRUE((*dataset)->Read(first).ok());
  const absl::Status beyond = (*dataset)->Read(both).status();
  EXPECT_EQ(beyond.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(beyond.message()), HasSubstr(path + ": token 65535 at byte offset 10"));
  std::filesystem::resize_file(path, 2);
  const absl::Status shortened = (*dataset)->Read(first).status();
  EXPECT_EQ(shortened.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(shortened.message()), HasSubstr(path + ": shortened while in use"));
}

TEST_F(TokenDatasetTest, TheIgnoredTargetIsAnOrdinaryTokenWithinTheVocabulary) {
  InputSpec ignoring = kSpec;
  ignoring.ignored = 5;
  const auto dataset = OpenTokens({Counting("a", 8, 0)}, TokenType::kUint16, ignoring);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_TRUE((*dataset)->Check({}).ok());
  ignoring.ignored = 1003;  // a token beyond the vocabulary cannot be an input
  EXPECT_THAT(ErrorOf({Counting("b", 8, 1000)}, TokenType::kUint16, ignoring),
              HasSubstr("token 1000"));
}

std::string Sidecar(const std::string& hash, int tokens) {
  return absl::StrCat(R"({"format": "muster-tokens", "tokens": )", tokens,
                      R"(, "dtype": "uint16", "vocab_size": 1000,
                      "tokenizer": {"path": "/t/)",
                      hash, R"(.json", "xxh3_128": ")", hash, R"("}})");
}

TEST_F(TokenDatasetTest, TheSidecarOfAFileSaysWhichTokenizerMadeIt) {
  const std::string plain = Counting("plain", 8, 0);
  const std::string made = Counting("made", 8, 0);
  ASSERT_TRUE(files::WriteAtomically(made + ".tokenizer.json", Sidecar("0a", 8)).ok());
  const auto unknown = OpenTokens({plain}, TokenType::kUint16, kSpec);
  ASSERT_TRUE(unknown.ok()) << unknown.status();
  EXPECT_FALSE((*unknown)->tokenizer().known());
  const auto known = OpenTokens({plain, made}, TokenType::kUint16, kSpec);
  ASSERT_TRUE(known.ok()) << known.status();
  EXPECT_EQ((*known)->tokenizer(), (tokenizer::Source{"/t/0a.json", "0a"}));
}

TEST_F(TokenDatasetTest, WhatTheSidecarDoesNotDescribeIsRefused) {
  const std::string a = Counting("a", 8, 0);
  const std::string b = Counting("b", 8, 0);
  ASSERT_TRUE(files::WriteAtomically(a + ".tokenizer.json", Sidecar("0a", 8)).ok());
  EXPECT_THAT(ErrorOf({a}, TokenType::kUint32), HasSubstr("dtype: expected uint16"));
  InputSpec small = kSpec;
  small.vocab_size = 999;
  EXPECT_THAT(ErrorOf({a}, TokenType::kUint16, small), HasSubstr("expected at least 1000"));
  ASSERT_TRUE(files::WriteAtomically(b + ".tokenizer.json", Sidecar("0b", 8)).ok());
  EXPECT_THAT(ErrorOf({a, b}), HasSubstr("two different tokenizers"));
  ASSERT_TRUE(files::WriteAtomically(a + ".tokenizer.json", Sidecar("0a", 9)).ok());
  EXPECT_THAT(ErrorOf({a}), HasSubstr("number of tokens: expected 9"));
  ASSERT_TRUE(files::WriteAtomically(a + ".tokenizer.json", "{}").ok());
  EXPECT_THAT(ErrorOf({a}), HasSubstr("does not describe a file of tokens"));
}

}  // namespace
}  // namespace muster::data
