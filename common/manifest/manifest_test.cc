#include "common/manifest/manifest.h"

#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/files/files.h"
#include "common/files/hash.h"
#include "common/files/temp_dir.h"
#include "common/safetensors/safetensors.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace muster::manifest {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Two files that hold w [2, 3] (cut at 4), the scalar step and a counter.
class ManifestTest : public ::testing::Test {
 protected:
  void SetUp() override {
    manifest_ = {.job = "j",
                 .step = 12,
                 .generation = 3,
                 .last_command = 5,
                 .epoch = 1,
                 .cursor = 96,
                 .world_size = 2,
                 .strategy = "ddp",
                 .model_kind = "mlp",
                 .optimizer = {"adamw", {{{"lr", {0.5}}, {"betas", {0.9, 0.95}}, {"eps", {1e-8}}}}},
                 .parameters = {{"w", {2, 3}, "F32", true, true, 0}}};
    AddFile("rank-0.safetensors", {{"param/w", safetensors::DType::kF32, {4}}});
    AddFile("rank-1.safetensors", {{"param/w", safetensors::DType::kF32, {2}},
                                   {"step/w", safetensors::DType::kF32, {1}},
                                   {"buffer/n", safetensors::DType::kI64, {1}}});
    manifest_.pieces = {{"param", "w", {2, 3}, 0, 4, "rank-0.safetensors"},
                        {"param", "w", {2, 3}, 4, 6, "rank-1.safetensors"},
                        {"step", "w", {}, 0, 1, "rank-1.safetensors"},
                        {"buffer", "n", {}, 0, 1, "rank-1.safetensors", "I64"}};
    for (Piece& piece : manifest_.pieces) {
      const auto file = safetensors::File::Open(dir_.Path(piece.file));
      piece.offset =
          static_cast<int64_t>(file->header().data_offset + file->Find(EntryName(piece))->begin);
    }
  }

  void AddFile(const std::string& name, std::vector<safetensors::Entry> entries) {
    const auto plan = safetensors::Plan(std::move(entries), {});
    const std::string text = plan->prefix + std::string(plan->entries.back().end, 'x');
    ASSERT_TRUE(files::WriteAtomically(dir_.Path(name), text).ok());
    const std::string hash = files::HashBytes(text.data(), text.size());
    manifest_.files.push_back({name, text.size(), hash, {hash}});
  }

  // Writes the manifest, then replaces a part of its text.
  void Edit(const std::string& from, const std::string& to) {
    ASSERT_TRUE(Write(manifest_, dir_.path()).ok());
    std::string text = *files::ReadFile(dir_.Path(kFileName));
    ASSERT_NE(text.find(from), std::string::npos) << text;
    text.replace(text.find(from), from.size(), to);
    ASSERT_TRUE(files::WriteAtomically(dir_.Path(kFileName), text).ok());
  }

  // Sets the hash as in docs/reference/checkpoint-format.md: the hash of the text with zeros in its
  // place.
  void Rehash() {
    std::string text = *files::ReadFile(dir_.Path(kFileName));
    const std::string name = "\"manifest_xxh3_128\": \"";
    const size_t at = text.find(name) + name.size();
    text.replace(at, 32, std::string(32, '0'));
    text.replace(at, 32, files::HashBytes(text.data(), text.size()));
    ASSERT_TRUE(files::WriteAtomically(dir_.Path(kFileName), text).ok());
  }

  std::string CompleteError() { return std::string(CheckComplete(manifest_).message()); }

  std::string VerifyError() {
    EXPECT_TRUE(Write(manifest_, dir_.path()).ok());
    const absl::Status status = Verify(dir_.path()).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
    return std::string(status.message());
  }

  files::TempDir dir_;
  Manifest manifest_;
};

TEST_F(ManifestTest, APassThatIsDueIsKeptAndOtherwiseNotSpokenOf) {
  for (const bool due : {true, false}) {
    manifest_.steering.validation_due = due;
    ASSERT_TRUE(Write(manifest_, dir_.path()).ok());
    EXPECT_EQ(Read(dir_.path())->steering.validation_due, due);
    const auto text = files::ReadFile(dir_.Path(kFileName));
    EXPECT_EQ(text->find("validation_due") != std::string::npos, due);
  }
}

TEST_F(ManifestTest, WhatValidationDecidedIsKeptAndOtherwiseNotSpokenOf) {
  ASSERT_TRUE(Write(manifest_, dir_.path()).ok());
  EXPECT_EQ(files::ReadFile(dir_.Path(kFileName))->find("validations"), std::string::npos);
  ValidationRecord& record = manifest_.steering.validations;
  for (const double value : {0.1, 4.0, -1.0 / 3, 1e-300}) {
    record.best = {.step = 80, .generation = 2, .value = value};
    record.patience = {.stage = 1, .best = {{80, value}}, .passes = 2};
    record.ended = {{0, 40}, {3, 90}};
    ASSERT_TRUE(Write(manifest_, dir_.path()).ok());
    EXPECT_EQ(Read(dir_.path())->steering.validations, record) << "the numbers to the last bit";
  }
  record = {.best = {}, .patience = {{.stage = 2, .best = {}, .passes = 1}}, .ended = {}};
  ASSERT_TRUE(Write(manifest_, dir_.path()).ok());
  EXPECT_EQ(Read(dir_.path())->steering.validations, record);
}

TEST_F(ManifestTest, HowSamplesWereTakenIsKeptAndOtherwiseNotSpokenOf) {
  ASSERT_TRUE(Write(manifest_, dir_.path()).ok());
  EXPECT_EQ(files::ReadFile(dir_.Path(kFileName))->find("sampling"), std::string::npos);
  manifest_.sampling = {
      {.samples = 149, .global_batch = 12, .last = "drop", .order = "shuffled", .seed = UINT64_MAX},
      {.step = 10,
       .epoch = 0,
       .cursor = 120,
       .samples = 149,
       .global_batch = 6,
       .last = "uneven",
       .order = "sequential",
       .per_rank = true,
       .skipped = true}};
  ASSERT_TRUE(Write(manifest_, dir_.path()).ok());
  EXPECT_EQ(Read(dir_.path())->sampling, manifest_.sampling);
  for (const auto& [from, to] : std::vector<std::pair<std::string, std::string>>{
           {"\"global_batch\": 12", "\"global_batch\": 0"},
           {"\"samples\": 149", "\"samples\": 4e18"},
           {"\"samples\": 149", "\"samples\": 4000000000000000000"},
           {"\"cursor\": 120", "\"cursor\": -1"},
           {"\"last\": \"drop\"", "\"last\": 1"}}) {
    Edit(from, to);
    Rehash();
    EXPECT_TRUE(absl::IsDataLoss(Read(dir_.path()).status())) << to;
  }
}

TEST_F(ManifestTest, RoundTripsAndVerifies) {
  ASSERT_TRUE(Write(manifest_, dir_.path()).ok());
  const auto read = Read(dir_.path());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, manifest_);
  EXPECT_TRUE(Verify(dir_.path()).ok()) << Verify(dir_.path()).status();
}

TEST_F(ManifestTest, KindsOfOptimizersAreKeptAndFitTheGroups) {
  manifest_.optimizer.groups.push_back({{"lr", {1}}});
  manifest_.optimizer.kinds = {"adamw", "sgd"};
  manifest_.parameters[0].group = 1;
  ASSERT_TRUE(Write(manifest_, dir_.path()).ok());
  const auto found = Read(dir_.path());
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->optimizer, manifest_.optimizer);
  EXPECT_EQ(found->optimizer.KindOf(1), "sgd");

  for (const int64_t group : {-1, 2}) {
    manifest_.parameters[0].group = group;
    EXPECT_NE(VerifyError().find("parameter 'w': there is no group"), std::string::npos);
  }
  manifest_.parameters[0].group = 0;
  manifest_.optimizer.kinds.pop_back();
  EXPECT_NE(VerifyError().find("expected a kind for each of 2 groups, found 1"), std::string::npos);
}

TEST_F(ManifestTest, MissingManifestIsNotFound) {
  EXPECT_EQ(Verify(dir_.path()).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(ManifestTest, EveryTruncationOfTheManifestIsRefused) {
  ASSERT_TRUE(Write(manifest_, dir_.path()).ok());
  const std::string text = *files::ReadFile(dir_.Path(kFileName));
  for (size_t size = 0; size + 2 < text.size(); ++size) {
    const auto refused = Parse(text.substr(0, size), dir_.path());
    ASSERT_EQ(refused.status().code(), absl::StatusCode::kDataLoss) << size;
  }
}

TEST_F(ManifestTest, AnotherVersionIsNamedAndNotCalledDamaged) {
  for (const int version : {2, 4}) {
    ASSERT_TRUE(Write(manifest_, dir_.path()).ok());
    Edit("\"version\": 3", absl::StrCat("\"version\": ", version));
    EXPECT_EQ(Read(dir_.path()).status().code(), absl::StatusCode::kDataLoss)
        << "its hash is another one";
    Rehash();
    const absl::Status other = Read(dir_.path()).status();
    EXPECT_EQ(other.code(), absl::StatusCode::kUnimplemented);
    EXPECT_THAT(std::string(other.message()),
                HasSubstr(absl::StrCat("has version ", version,
                                       " of muster-checkpoint, this program reads version 3")));
  }
}

// Version 1 had no hash of itself.
TEST_F(ManifestTest, Version1IsNamedToo) {
  ASSERT_TRUE(Write(manifest_, dir_.path()).ok());
  auto json = nlohmann::ordered_json::parse(*files::ReadFile(dir_.Path(kFileName)));
  json["version"] = 1;
  EXPECT_EQ(Parse(json.dump(1), dir_.path()).status().code(), absl::StatusCode::kDataLoss)
      << "a changed bit of version 3";
  json.erase("manifest_xxh3_128");
  EXPECT_EQ(Parse(json.dump(1), dir_.path()).status().code(), absl::StatusCode::kUnimplemented);
}

TEST_F(ManifestTest, AnyFlippedBitOfItsTextIsDamage) {
  ASSERT_TRUE(Write(manifest_, dir_.path()).ok());
  const std::string good = *files::ReadFile(dir_.Path(kFileName));
  for (size_t at = 0; at < good.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string bad = good;
      bad[at] = static_cast<char>(bad[at] ^ (1 << bit));
      ASSERT_EQ(Parse(bad, dir_.path()).status().code(), absl::StatusCode::kDataLoss)
          << at << ": " << bad.substr(at, 20);
    }
  }
  EXPECT_TRUE(Parse(good, dir_.path()).ok());
}

TEST_F(ManifestTest, ARenamedMemberIsDamage) {
  ASSERT_TRUE(Write(manifest_, dir_.path()).ok());
  const std::string good = *files::ReadFile(dir_.Path(kFileName));
  const auto json = nlohmann::ordered_json::parse(good);
  for (const auto& [name, value] : json.items()) {
    std::string bad = good;
    const std::string member = absl::StrCat("\"", name, "\":");
    bad.replace(bad.find(member), member.size(), absl::StrCat("\"", name, "_\":"));
    EXPECT_EQ(Parse(bad, dir_.path()).status().code(), absl::StatusCode::kDataLoss) << name;
  }
}

TEST_F(ManifestTest, AChangedStepIsFound) {
  Edit("\"step\": 12", "\"step\": 1012");
  EXPECT_THAT(
      std::string(Verify(dir_.path()).status().message()),
      AllOf(HasSubstr("was changed or is damaged: expected the hash "), HasSubstr(", found ")));
}

TEST_F(ManifestTest, TheHashIsThatOfTheTextWithZerosInItsPlace) {
  ASSERT_TRUE(Write(manifest_, dir_.path()).ok());
  std::string text = *files::ReadFile(dir_.Path(kFileName));
  const std::string member = "\"manifest_xxh3_128\": \"";
  const size_t at = text.find(member) + member.size();
  const std::string hash = text.substr(at, 32);
  text.replace(at, 32, 32, '0');
  EXPECT_EQ(hash, files::HashBytes(text.data(), text.size()));
}

TEST_F(ManifestTest, ADamagedBlockIsNamed) {
  ASSERT_TRUE(Write(manifest_, dir_.path()).ok());
  std::string text = *files::ReadFile(dir_.Path("rank-1.safetensors"));
  text.back() ^= 1;
  ASSERT_TRUE(files::WriteAtomically(dir_.Path("rank-1.safetensors"), text).ok());
  EXPECT_THAT(VerifyError(), AllOf(HasSubstr("rank-1.safetensors: bytes 0 to "),
                                   HasSubstr(": expected the hash "), HasSubstr(", found ")));
}

TEST_F(ManifestTest, PiecesLieInTheirFilesWhichHaveAHashForEachBlock) {
  const Manifest good = manifest_;
  manifest_.files[0].blocks.clear();
  EXPECT_THAT(CompleteError(), HasSubstr("'rank-0.safetensors': expected 1 blocks in "));
  for (const int64_t offset : {int64_t{-1}, int64_t{1} << 62}) {
    manifest_ = good;
    manifest_.pieces[0].offset = offset;
    EXPECT_THAT(CompleteError(), HasSubstr("param/w: 4 elements of F32 at byte ")) << offset;
  }
  manifest_ = good;
  manifest_.pieces[0].offset -= 4;
  EXPECT_THAT(VerifyError(), HasSubstr("entry 'param/w': expected it at byte "));
}

TEST_F(ManifestTest, StepAndGenerationAreThoseOfTheDirectorysName) {
  for (const std::string name : {"step-12-g3", "step-13-g3", "step-12-g4", "copied"}) {
    const std::string directory = dir_.Path(name);
    std::filesystem::create_directory(directory);
    for (const FileRecord& file : manifest_.files) {
      std::filesystem::copy_file(dir_.Path(file.name), directory + "/" + file.name);
    }
    ASSERT_TRUE(Write(manifest_, directory).ok());
    const bool agrees = name == "step-12-g3" || name == "copied";
    EXPECT_EQ(Verify(directory).ok(), agrees) << name;
    EXPECT_EQ(Read(directory + "/").ok(), agrees) << name;
  }
  EXPECT_THAT(
      std::string(Read(dir_.Path("step-13-g3")).status().message()),
      HasSubstr("expected step 13 and generation 3, as the directory is called, found step 12 "
                "and generation 3"));
}

TEST_F(ManifestTest, PiecesOfAnotherDtypeThanTheFilesAreFound) {
  manifest_.pieces[3].dtype = "F32";
  EXPECT_THAT(VerifyError(), HasSubstr("entry 'buffer/n': expected F32 [1], found I64 [1]"));
}

TEST_F(ManifestTest, HolesOverlapsAndUnknownFilesAreIncomplete) {
  const Manifest good = manifest_;
  manifest_.pieces[1].begin = 5;
  EXPECT_THAT(CompleteError(), HasSubstr("param/w: expected a piece that begins at 4 of 6"));
  manifest_ = good;
  manifest_.pieces[1].begin = 3;
  EXPECT_THAT(CompleteError(), HasSubstr("found [3, 6) in rank-1"));
  manifest_ = good;
  manifest_.pieces[1].end = 7;
  EXPECT_THAT(CompleteError(), HasSubstr("found [4, 7)"));
  manifest_ = good;
  manifest_.pieces.erase(manifest_.pieces.begin() + 1);
  EXPECT_THAT(CompleteError(), HasSubstr("param/w: expected 6 elements, found the first 4"));
  manifest_ = good;
  manifest_.pieces[1].shape = {6};
  EXPECT_THAT(CompleteError(), HasSubstr("disagree on the shape: [2, 3] and [6]"));
  manifest_ = good;
  manifest_.pieces[1].dtype = "I64";
  EXPECT_THAT(CompleteError(), HasSubstr("param/w: its pieces disagree on the dtype: F32 and I64"));
  manifest_ = good;
  manifest_.pieces[2].file = "rank-2.safetensors";
  EXPECT_THAT(CompleteError(), HasSubstr("step/w: its file 'rank-2.safetensors' is not listed"));
  manifest_ = good;
  manifest_.files[0].name = "../rank-0.safetensors";
  EXPECT_THAT(CompleteError(), HasSubstr("not a plain file name"));
}

TEST_F(ManifestTest, TruncatedFileIsFoundBySize) {
  std::filesystem::resize_file(dir_.Path("rank-0.safetensors"), manifest_.files[0].size - 1);
  EXPECT_THAT(VerifyError(),
              AllOf(HasSubstr("rank-0.safetensors: expected "), HasSubstr("bytes, found")));
}

TEST_F(ManifestTest, AnyFlippedBitOfAFileIsFoundByHash) {
  const std::string good = *files::ReadFile(dir_.Path("rank-1.safetensors"));
  for (size_t at : {size_t{0}, good.size() / 2, good.size() - 1}) {
    std::string bad = good;
    bad[at] ^= 4;
    ASSERT_TRUE(files::WriteAtomically(dir_.Path("rank-1.safetensors"), bad).ok());
    EXPECT_THAT(VerifyError(), HasSubstr("rank-1.safetensors: bytes 0 to "));
  }
}

TEST_F(ManifestTest, FilesThatLackAPieceAreReported) {
  manifest_.pieces[2].parameter = "v";
  EXPECT_THAT(VerifyError(), HasSubstr("rank-1.safetensors: no entry 'step/v'"));
}

// The file may be readable again later.
TEST_F(ManifestTest, AFileThatIsNotThereIsNoDamage) {
  ASSERT_TRUE(Write(manifest_, dir_.path()).ok());
  std::filesystem::remove(dir_.Path("rank-0.safetensors"));
  const absl::Status status = Verify(dir_.path()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("rank-0.safetensors: No such file"));
}

TEST_F(ManifestTest, DamageIsToldWhereAnotherFileIsMissing) {
  std::filesystem::remove(dir_.Path("rank-0.safetensors"));
  std::filesystem::resize_file(dir_.Path("rank-1.safetensors"), 20);
  EXPECT_THAT(VerifyError(), HasSubstr("rank-1.safetensors: expected "));
}

TEST_F(ManifestTest, HoldsWhyCommandsFailed) {
  manifest_.steering.applied = {{1, 3}, {2, 7}};
  manifest_.steering.failed = {{2, absl::OutOfRangeError("no step is left"), "NO_STEPS_LEFT"}};
  ASSERT_TRUE(Write(manifest_, dir_.path()).ok());
  EXPECT_EQ(Read(dir_.path())->steering, manifest_.steering);
  manifest_.steering.failed[0].status = absl::OutOfRangeError("a name \xff");
  EXPECT_TRUE(Write(manifest_, dir_.path()).ok()) << "a message never costs a checkpoint";
}

TEST_F(ManifestTest, ANumberThatIsNotWholeOrOutOfRangeIsRefused) {
  const auto read = [this](const std::string& step) {
    Edit("\"step\": 12", absl::StrCat("\"step\": ", step));
    Rehash();
    return Read(dir_.path());
  };
  const auto whole = read("7");
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_EQ(whole->step, 7);
  for (const std::string step : {"7.5", "7e+20", "9223372036854775808", "\"7\"", "null", "[7]"}) {
    const auto refused = read(step);
    EXPECT_TRUE(absl::IsDataLoss(refused.status())) << refused.status();
    EXPECT_NE(refused.status().message().find("expected a whole number, found " + step),
              absl::string_view::npos)
        << refused.status();
  }
}

}  // namespace
}  // namespace muster::manifest
