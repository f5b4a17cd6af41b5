#include "client/cli/data/pack.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <string>

#include "common/files/files.h"
#include "common/files/temp_dir.h"
#include "common/status/status.h"

namespace muster::cli {
namespace {

using ::testing::HasSubstr;

const auto kNever = [] { return false; };

class PackTest : public testing::Test {
 protected:
  std::string Write(const std::string& name, const std::string& contents) {
    EXPECT_TRUE(files::WriteAtomically(folder_.Path(name), contents).ok());
    return folder_.Path(name);
  }
  std::string Read(const std::string& name) { return files::ReadFile(folder_.Path(name)).value(); }
  int CountFiles() {
    int count = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder_.path())) {
      ++count;
    }
    return count;
  }

  files::TempDir folder_;
};

// The bytes as tokens of two bytes each, little endian.
std::string Tokens(const std::string& bytes) {
  std::string tokens;
  for (char byte : bytes) tokens += std::string(1, byte) + '\0';
  return tokens;
}

TEST_F(PackTest, EveryByteIsATokenAndFilesFollowOneAnother) {
  const auto packed = Pack({.inputs = {Write("a", "hi"), Write("empty", ""), Write("b", "\xff\n")},
                            .out = folder_.Path("out")},
                           kNever);
  ASSERT_TRUE(packed.ok()) << packed.status();
  EXPECT_EQ(Read("out"), Tokens("hi\xff\n"));
  ASSERT_EQ(packed->size(), 1);
  EXPECT_EQ((*packed)[0].tokens, 4);
}

TEST_F(PackTest, TokensThatAreReplacedTakeTheirSidecarAlong) {
  Write("out", "older");
  Write("out.tokenizer.json", "{}");
  const auto packed = Pack({.inputs = {Write("a", "hi")}, .out = folder_.Path("out")}, kNever);
  ASSERT_TRUE(packed.ok()) << packed.status();
  EXPECT_EQ(Read("out"), Tokens("hi"));
  EXPECT_FALSE(std::filesystem::exists(folder_.Path("out.tokenizer.json")));
}

TEST_F(PackTest, ASidecarThatWouldBeRemovedIsNoInput) {
  const std::string input = Write("out.tokenizer.json", "{}");
  const auto packed = Pack({.inputs = {input}, .out = folder_.Path("out")}, kNever);
  EXPECT_EQ(packed.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Read("out.tokenizer.json"), "{}");
}

TEST_F(PackTest, WhatIsNoRegularFileIsNotReplaced) {
  ASSERT_EQ(mkfifo(folder_.Path("pipe").c_str(), 0600), 0);
  std::filesystem::create_symlink("elsewhere", folder_.Path("link"));
  for (const char* const out : {"pipe", "link"}) {
    const auto packed = Pack({.inputs = {Write("a", "hi")}, .out = folder_.Path(out)}, kNever);
    EXPECT_TRUE(absl::IsFailedPrecondition(packed.status())) << packed.status();
    EXPECT_FALSE(std::filesystem::is_regular_file(folder_.Path(out)));
  }
}

TEST_F(PackTest, SplitsAcrossInputsAndLosesNothing) {
  const std::string a(3000000, 'a');
  const std::string b(1000001, 'b');
  const auto packed = Pack({.inputs = {Write("a", a), Write("b", b)},
                            .out = folder_.Path("train"),
                            .out_rest = folder_.Path("rest"),
                            .split = 0.9},
                           kNever);
  ASSERT_TRUE(packed.ok()) << packed.status();
  EXPECT_EQ((*packed)[0].tokens, 3600000);
  EXPECT_EQ((*packed)[1].tokens, 400001);
  EXPECT_TRUE(Read("train") + Read("rest") == Tokens(a + b));
}

TEST_F(PackTest, AnErrorLeavesWhatWasThereAndNothingNew) {
  const std::string input = Write("in", "hello");
  Write("out", "old");
  EXPECT_EQ(Pack({.inputs = {input, folder_.Path("none")}, .out = folder_.Path("out")}, kNever)
                .status()
                .code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(
      Pack({.inputs = {input}, .out = folder_.Path("out")}, [] { return true; }).status().code(),
      absl::StatusCode::kCancelled);
  EXPECT_FALSE(Pack({.inputs = {input},
                     .out = folder_.Path("out"),
                     .out_rest = folder_.Path("no-folder/rest"),
                     .split = 0.5},
                    kNever)
                   .ok());
  EXPECT_EQ(Read("out"), "old");
  EXPECT_EQ(CountFiles(), 2);
}

TEST_F(PackTest, RefusesWhatMakesNoSense) {
  const std::string in = Write("in", "hello");
  const std::string out = folder_.Path("out");
  const std::string rest = folder_.Path("rest");
  const auto refusal = [](const PackOptions& options) {
    const auto packed = Pack(options, kNever);
    EXPECT_EQ(packed.status().code(), absl::StatusCode::kInvalidArgument);
    return Message(packed.status());
  };
  EXPECT_THAT(refusal({.inputs = {in}, .out = in}), HasSubstr("both input and output"));
  EXPECT_THAT(refusal({.inputs = {in}, .out = out, .out_rest = out, .split = 0.5}),
              HasSubstr("are both"));
  EXPECT_THAT(refusal({.inputs = {in}, .out = out, .split = 0.5}),
              HasSubstr("belong together: --out-rest is missing"));
  EXPECT_THAT(refusal({.inputs = {in}, .out = out, .out_rest = rest, .split = 1}),
              HasSubstr("above 0 and below 1"));
  EXPECT_THAT(refusal({.inputs = {in}, .out = out, .out_rest = rest}),
              HasSubstr("belong together: --split is missing"));
  EXPECT_THAT(refusal({.inputs = {in}, .out = out, .out_rest = rest, .split = 1.5}),
              HasSubstr("above 0 and below 1"));
  EXPECT_THAT(refusal({.inputs = {in}, .out = out, .out_rest = rest, .split = 0.1}),
              HasSubstr("without a token"));
  EXPECT_THAT(refusal({.inputs = {Write("empty", "")}, .out = out}), HasSubstr("without a token"));
  EXPECT_FALSE(std::filesystem::exists(out));
}

}  // namespace
}  // namespace muster::cli
