#include "common/modelfolder/folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "common/files/files.h"
#include "common/files/hash.h"
#include "common/files/temp_dir.h"
#include "common/tokenizer/source.h"

namespace muster::modelfolder {
namespace {

using ::testing::Contains;
using ::testing::IsEmpty;

constexpr char kTokenizer[] = "{\"version\": \"1.0\"}";

class CompanionsTest : public testing::Test {
 protected:
  CompanionsTest() {
    EXPECT_TRUE(files::CreateDirectories(dir_.Path("source")).ok());
    EXPECT_TRUE(files::CreateDirectories(dir_.Path("new")).ok());
  }
  void Make(const std::string& name, const std::string& contents) {
    ASSERT_TRUE(files::WriteAtomically(dir_.Path(name), contents).ok());
  }
  // Writes for a model that began with source/model.safetensors and trained on tokens of t.json.
  absl::StatusOr<Companions> Write() {
    Make("t.json", kTokenizer);
    return WriteCompanions(
        {.config = "{}",
         .first_weights = dir_.Path("source/model.safetensors"),
         .tokenizer = {.path = dir_.Path("t.json"),
                       .hash = files::HashBytes(kTokenizer, sizeof(kTokenizer) - 1)}},
        dir_.Path("new"));
  }
  std::string Read(const std::string& name) {
    return files::ReadFile(dir_.Path(name)).value_or("none");
  }

  files::TempDir dir_;
};

TEST_F(CompanionsTest, AFolderWithoutTokenizerGetsThatOfTheTrainingData) {
  Make("source/generation_config.json", "{\"top_k\": 3}");
  const auto written = Write();
  ASSERT_TRUE(written.ok()) << written.status();
  EXPECT_EQ(Read("new/tokenizer.json"), kTokenizer);
  EXPECT_EQ(Read("new/generation_config.json"), "{\"top_k\": 3}");
  EXPECT_THAT(written->files, Contains("tokenizer.json"));
  EXPECT_THAT(written->notes, IsEmpty());
}

TEST_F(CompanionsTest, TheTokenizerBesideTheFirstWeightsComesFirst) {
  Make("source/vocab.json", "{}");
  const auto written = Write();
  ASSERT_TRUE(written.ok()) << written.status();
  EXPECT_EQ(Read("new/vocab.json"), "{}");
  EXPECT_EQ(Read("new/tokenizer.json"), "none");
}

}  // namespace
}  // namespace muster::modelfolder
