#include "worker/data/tokens/documents_dataset.h"

#include <filesystem>
#include <fstream>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "common/files/files.h"
#include "common/files/temp_dir.h"
#include "common/safetensors/safetensors.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::data {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr int64_t kNot = -100;  // a target that does not count

InputSpec Spec(int64_t context) {
  return {.kind = InputSpec::Kind::kTokens,
          .vocab_size = 1000,
          .context = context,
          .documents = true,
          .ignored = kNot};
}

struct Document {
  std::vector<int64_t> tokens;
  std::vector<uint8_t> trained;
};

std::vector<int64_t> Flat(const at::Tensor& tensor) {
  return {tensor.data_ptr<int64_t>(), tensor.data_ptr<int64_t>() + tensor.numel()};
}

class DocumentsDatasetTest : public ::testing::Test {
 protected:
  // The arrays of a file, which a test may damage.
  struct Contents {
    std::vector<int64_t> bounds = {0};
    std::vector<uint16_t> tokens;
    std::vector<uint8_t> trained;
    safetensors::Metadata metadata = {{"format", "muster-documents"},
                                      {"version", "1"},
                                      {"vocab_size", "900"},
                                      {"tokenizer", "/t/tokenizer.json"},
                                      {"tokenizer_xxh3_128", "abc"}};
  };

  static Contents Of(const std::vector<Document>& documents) {
    Contents contents;
    for (const Document& one : documents) {
      contents.tokens.insert(contents.tokens.end(), one.tokens.begin(), one.tokens.end());
      contents.trained.insert(contents.trained.end(), one.trained.begin(), one.trained.end());
      contents.bounds.push_back(static_cast<int64_t>(contents.tokens.size()));
    }
    return contents;
  }

  // Tokens from `first` on, all of which are trained.
  static Document Counting(int64_t first, int64_t count) {
    Document document;
    document.tokens.resize(count);
    std::iota(document.tokens.begin(), document.tokens.end(), first);
    document.trained.assign(count, 1);
    return document;
  }

  std::string Write(const std::string& name, const Contents& contents) {
    const auto size = [](const auto& values) { return static_cast<int64_t>(values.size()); };
    const auto plan =
        safetensors::Plan({{"bounds", safetensors::DType::kI64, {size(contents.bounds)}},
                           {"tokens", safetensors::DType::kU16, {size(contents.tokens)}},
                           {"trained", safetensors::DType::kU8, {size(contents.trained)}}},
                          contents.metadata);
    EXPECT_TRUE(plan.ok()) << plan.status();
    std::string bytes = plan->prefix;
    const auto add = [&](const auto& values) {
      bytes.append(reinterpret_cast<const char*>(values.data()),
                   values.size() * sizeof(values.front()));
    };
    add(contents.bounds);
    add(contents.tokens);
    add(contents.trained);
    EXPECT_TRUE(files::WriteAtomically(dir_.Path(name), bytes).ok());
    return dir_.Path(name);
  }

  std::string File(const std::string& name, const std::vector<Document>& documents) {
    return Write(name, Of(documents));
  }

  static std::unique_ptr<Dataset> MustOpen(const std::vector<std::string>& paths, Packed packed,
                                           const InputSpec& spec) {
    auto dataset = OpenDocuments(paths, packed, spec);
    EXPECT_TRUE(dataset.ok()) << dataset.status();
    return dataset.ok() ? *std::move(dataset) : nullptr;
  }

  // The error of opening or, after success, of Check.
  static std::string ErrorOf(const std::vector<std::string>& paths, const InputSpec& spec,
                             Packed packed = Packed::kBestFit) {
    const auto dataset = OpenDocuments(paths, packed, spec);
    const absl::Status status = dataset.ok() ? (*dataset)->Check({}) : dataset.status();
    EXPECT_FALSE(status.ok());
    return std::string(status.message());
  }

  files::TempDir dir_;
};

TEST_F(DocumentsDatasetTest, OnlyMarkedTokensAreTargetsAndFillersAreADocumentOfTheirOwn) {
  const std::string path =
      File("a", {{{10, 11, 12, 13}, {0, 0, 1, 1}}, {{20, 21}, {0, 1}}, {{30, 31, 32}, {1, 1, 0}}});
  const auto dataset = MustOpen({path}, Packed::kBestFit, Spec(5));
  ASSERT_EQ(dataset->size(), 2);
  EXPECT_TRUE(dataset->Check({}).ok());
  const std::vector<int64_t> samples = {1, 0};
  const auto batch = dataset->Read(samples);
  ASSERT_TRUE(batch.ok()) << batch.status();
  EXPECT_EQ(batch->inputs.sizes(), (std::vector<int64_t>{2, 5}));
  EXPECT_THAT(Flat(batch->inputs), ElementsAre(20, 0, 0, 0, 0, 10, 11, 12, 30, 31));
  EXPECT_THAT(Flat(batch->targets),
              ElementsAre(21, kNot, kNot, kNot, kNot, kNot, 12, 13, 31, kNot));
  ASSERT_THAT(batch->further, SizeIs(1));
  EXPECT_THAT(Flat(batch->further[0]), ElementsAre(0, 0, 1, 2, 3, 0, 1, 2, 0, 1));
}

TEST_F(DocumentsDatasetTest, RowsAreAsLongAsTheLongestSampleOfTheBatch) {
  const std::string path = File("a", {Counting(1, 4), Counting(11, 3), Counting(21, 6)});
  const auto dataset = MustOpen({path}, Packed::kEach, Spec(100));
  ASSERT_EQ(dataset->size(), 3);
  const auto read = [&](std::vector<int64_t> samples) { return *dataset->Read(samples); };
  const Batch batch = read({0, 1});
  EXPECT_THAT(Flat(batch.inputs), ElementsAre(1, 2, 3, 11, 12, 0));
  EXPECT_THAT(Flat(batch.targets), ElementsAre(2, 3, 4, 12, 13, kNot));
  EXPECT_THAT(batch.further, IsEmpty());
  EXPECT_EQ(read({2}).inputs.size(1), 5);
}

TEST_F(DocumentsDatasetTest, RowsAreFilledUpForAModelWithOneLength) {
  InputSpec spec = Spec(5);
  spec.documents = false;
  const auto dataset = MustOpen({File("a", {Counting(1, 4)})}, Packed::kEach, spec);
  const std::vector<int64_t> samples = {0};
  EXPECT_THAT(Flat(dataset->Read(samples)->inputs), ElementsAre(1, 2, 3, 0, 0));
  EXPECT_THAT(Flat(dataset->Read(samples)->targets), ElementsAre(2, 3, 4, kNot, kNot));
  EXPECT_EQ(dataset->Blank(2).inputs.sizes(), (std::vector<int64_t>{2, 5}));
}

TEST_F(DocumentsDatasetTest, FilesFollowOneAnother) {
  const std::string a = File("a", {Counting(1, 3)}), b = File("b", {Counting(11, 3)});
  const auto dataset = MustOpen({a, b}, Packed::kBestFit, Spec(4));
  ASSERT_EQ(dataset->size(), 1);
  const std::vector<int64_t> samples = {0};
  EXPECT_THAT(Flat(dataset->Read(samples)->inputs), ElementsAre(1, 2, 11, 12));
  EXPECT_EQ(dataset->tokenizer().path, "/t/tokenizer.json");
  ASSERT_THAT(dataset->notes(), SizeIs(1));
  EXPECT_THAT(dataset->notes()[0].text,
              HasSubstr("2 documents are packed into 1 samples, which are 100.0% full"));
  EXPECT_EQ(dataset->mean_tokens(), 4.0);
}

TEST_F(DocumentsDatasetTest, AModelThatReturnsItsLossHasTheTargetsAmongItsInputs) {
  const std::string path = File("a", {{{10, 11, 12}, {1, 0, 1}}});
  InputSpec spec = Spec(4);
  spec.kind = InputSpec::Kind::kArrays;
  spec.documents = false;
  spec.own_loss = true;
  spec.arrays = {{"input_ids", c10::ScalarType::Long, {4}}, {"labels", c10::ScalarType::Long, {4}}};
  const std::vector<int64_t> samples = {0};
  spec.counted = models::CountedInput{.input = 1, .first = 0};
  Batch batch = *MustOpen({path}, Packed::kEach, spec)->Read(samples);
  EXPECT_THAT(Flat(batch.inputs), ElementsAre(10, 11, 0, 0));
  EXPECT_THAT(Flat(batch.further[0]), ElementsAre(kNot, 12, kNot, kNot));
  // Such a model leaves out the first target and computes the second from the first token.
  spec.counted->first = 1;
  batch = *MustOpen({path}, Packed::kEach, spec)->Read(samples);
  EXPECT_THAT(Flat(batch.inputs), ElementsAre(10, 11, 12, 0));
  EXPECT_THAT(Flat(batch.further[0]), ElementsAre(kNot, kNot, 12, kNot));
}

TEST_F(DocumentsDatasetTest, ADocumentThatIsTooLongIsRefused) {
  const std::string path = File("a", {Counting(1, 4), Counting(1, 6)});
  EXPECT_TRUE(OpenDocuments({path}, Packed::kBestFit, Spec(5)).ok());
  EXPECT_THAT(
      ErrorOf({path}, Spec(4)),
      AllOf(HasSubstr("document 1 has 6 tokens; expected at most 5"), HasSubstr("--context 4")));
}

TEST_F(DocumentsDatasetTest, ADocumentWithoutATargetIsRefused) {
  const std::string path = File("a", {Counting(1, 4), {{1, 2, 3}, {1, 0, 0}}});
  EXPECT_THAT(ErrorOf({path}, Spec(9)), HasSubstr("no token of document 1 is trained"));
}

TEST_F(DocumentsDatasetTest, DamagedFilesAreRefused) {
  const Contents good = Of({Counting(1, 4), Counting(11, 3)});
  const auto error = [&](const auto& damage) {
    Contents bad = good;
    damage(&bad);
    return ErrorOf({Write("bad", bad)}, Spec(9));
  };
  EXPECT_THAT(error([](Contents* c) { c->metadata["format"] = "pt"; }),
              HasSubstr("expected a file of documents"));
  EXPECT_THAT(error([](Contents* c) { c->metadata["version"] = "2"; }),
              HasSubstr("expected version 1"));
  EXPECT_THAT(error([](Contents* c) { c->metadata["vocab_size"] = "many"; }),
              HasSubstr("vocab_size: expected a number"));
  EXPECT_THAT(error([](Contents* c) { c->metadata["vocab_size"] = "1001"; }),
              HasSubstr("the tokenizer has tokens up to 1000"));
  EXPECT_THAT(error([](Contents* c) { c->trained.pop_back(); }), HasSubstr("as many marks"));
  EXPECT_THAT(error([](Contents* c) { c->bounds.clear(); }), HasSubstr("expected a bound"));
  EXPECT_THAT(error([](Contents* c) { c->bounds[0] = 1; }), HasSubstr("bounds[0]: expected 0"));
  EXPECT_THAT(error([](Contents* c) { c->bounds[1] = 1; }), HasSubstr("bounds[1]: expected 2"));
  EXPECT_THAT(error([](Contents* c) { c->bounds[1] = 6; }), HasSubstr("bounds[2]: expected 8"));
  EXPECT_THAT(error([](Contents* c) { c->bounds[2] = int64_t{1} << 62; }),
              HasSubstr("bounds[2]: expected"));
  EXPECT_THAT(error([](Contents* c) { c->bounds.pop_back(); }), HasSubstr("bounds[1]: expected 7"));
  EXPECT_THAT(error([](Contents* c) { c->tokens[5] = 1000; }),
              HasSubstr("token 1000 at byte offset"));
  EXPECT_THAT(error([](Contents* c) { c->trained[6] = 2; }),
              HasSubstr("trained[6]: expected 0 or 1, found 2"));
}

TEST_F(DocumentsDatasetTest, WhatDoesNotFitTheModelOrEachOtherIsRefused) {
  const std::string path = File("a", {Counting(1, 4)});
  InputSpec apart = Spec(9);
  apart.documents = false;
  EXPECT_THAT(ErrorOf({path}, apart), HasSubstr("packing: none"));
  EXPECT_TRUE(OpenDocuments({path}, Packed::kEach, apart).ok());
  InputSpec rows = {.kind = InputSpec::Kind::kRows, .row_elements = 3};
  EXPECT_THAT(ErrorOf({path}, rows), HasSubstr("does not take tokens"));
  Contents other = Of({Counting(1, 4)});
  other.metadata["tokenizer_xxh3_128"] = "def";
  EXPECT_THAT(ErrorOf({path, Write("other", other)}, Spec(9)), HasSubstr("tokenizer"));
  EXPECT_THAT(ErrorOf({File("none", {})}, Spec(9)), HasSubstr("there is no document"));
}

TEST_F(DocumentsDatasetTest, WhatChangesAfterTheCheckIsFoundWhenItIsRead) {
  const std::string path = File("a", {Counting(1, 4)});
  const auto dataset = MustOpen({path}, Packed::kBestFit, Spec(9));
  ASSERT_TRUE(dataset->Check({}).ok());
  const std::vector<int64_t> samples = {0};
  ASSERT_TRUE(dataset->Read(samples).ok());
  const std::string bytes = files::ReadFile(path).value();
  const auto overwrite = [&](size_t at, const std::string& with) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(at));
    file << with;
  };
  // The last 12 bytes are four tokens and four marks; 16 bytes of bounds come before.
  overwrite(bytes.size() - 10, "\xff\xff");
  EXPECT_THAT(std::string(dataset->Read(samples).status().message()), HasSubstr("token 65535"));
  overwrite(0, bytes);
  overwrite(bytes.size() - 28, std::string("\0\0\0\0\1\0\0\0\4\0\0\0\1\0\0\0", 16));
  EXPECT_THAT(std::string(dataset->Read(samples).status().message()), HasSubstr("have changed"));
  overwrite(0, bytes);
  ASSERT_TRUE(dataset->Read(samples).ok());
  std::filesystem::resize_file(path, bytes.size() - 1);
  EXPECT_THAT(std::string(dataset->Read(samples).status().message()), HasSubstr("shortened"));
}

}  // namespace
}  // namespace muster::data
