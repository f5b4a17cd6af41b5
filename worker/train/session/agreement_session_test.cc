// Ranks whose jobs differ in one field of the schema. For every field, the session ends on all
// ranks and names the field. No rank hangs.
#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/exports/target.h"
#include "common/jobspec/fields.h"
#include "common/safetensors/safetensors.h"
#include "worker/train/ranks/failure.h"
#include "worker/train/session/session_fixture.h"

namespace muster::train {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using ::testing::HasSubstr;

// The fields from JobSpec to a field with a value, or to a message without fields.
using Path = std::vector<const FieldDescriptor*>;

void Collect(const Descriptor& type, Path* at, std::vector<Path>* found) {
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    at->push_back(&field);
    const bool inner = field.message_type() != nullptr && !field.is_map() &&
                       field.message_type()->field_count() > 0;
    if (inner) {
      Collect(*field.message_type(), at, found);
    } else {
      found->push_back(*at);
    }
    at->pop_back();
  }
}

std::vector<Path> AllPaths() {
  std::vector<Path> found;
  Path at;
  Collect(*v1::JobSpec::descriptor(), &at, &found);
  return found;
}

// Returns the name of a field, such as "stages[0].fit.steps".
std::string NameOf(const Path& path) {
  std::string name;
  for (const FieldDescriptor* field : path) {
    name = jobspec::PathOf(name, *field);
    if (field->is_map()) {
      name += "[\"key\"]";
    } else if (field->is_repeated()) {
      name += "[0]";
    }
  }
  return name;
}

void SetMapEntry(bool other, const FieldDescriptor& field, Message* message) {
  Message* entry = message->GetReflection()->AddMessage(message, &field);
  entry->GetReflection()->SetString(entry, field.message_type()->map_key(), "key");
  entry->GetReflection()->SetString(entry, field.message_type()->map_value(), other ? "b" : "a");
}

// Sets one of two values of a field. The first may be no value.
void SetValue(bool other, const FieldDescriptor& field, Message* message) {
  const auto& reflection = *message->GetReflection();
  const bool list = field.is_repeated();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_MESSAGE:
      if (field.is_map()) return SetMapEntry(other, field, message);
      if (other) reflection.MutableMessage(message, &field);
      return;
    case FieldDescriptor::CPPTYPE_STRING:
      return list ? reflection.AddString(message, &field, other ? "b" : "a")
                  : reflection.SetString(message, &field, other ? "b" : "a");
    case FieldDescriptor::CPPTYPE_BOOL:
      return reflection.SetBool(message, &field, other);
    case FieldDescriptor::CPPTYPE_ENUM:
      return reflection.SetEnumValue(message, &field, other ? 1 : 0);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return list ? reflection.AddDouble(message, &field, other ? 2 : 1)
                  : reflection.SetDouble(message, &field, other ? 2 : 1);
    case FieldDescriptor::CPPTYPE_INT32:
      return reflection.SetInt32(message, &field, other ? 2 : 1);
    case FieldDescriptor::CPPTYPE_UINT32:
      return list ? reflection.AddUInt32(message, &field, other ? 2 : 1)
                  : reflection.SetUInt32(message, &field, other ? 2 : 1);
    case FieldDescriptor::CPPTYPE_INT64:
      return reflection.SetInt64(message, &field, other ? 2 : 1);
    case FieldDescriptor::CPPTYPE_UINT64:
      return reflection.SetUInt64(message, &field, other ? 2 : 1);
    case FieldDescriptor::CPPTYPE_FLOAT:
      break;
  }
  FAIL() << field.full_name() << " is of a type that the schema did not have so far";
}

v1::JobSpec SpecWith(const Path& path, bool other) {
  v1::JobSpec spec;
  Message* at = &spec;
  for (size_t i = 0; i + 1 < path.size(); ++i) {
    at = path[i]->is_repeated() ? at->GetReflection()->AddMessage(at, path[i])
                                : at->GetReflection()->MutableMessage(at, path[i]);
  }
  SetValue(other, *path.back(), at);
  return spec;
}

class AgreementSessionTest : public SessionTest, public testing::WithParamInterface<Path> {};

TEST_P(AgreementSessionTest, RanksWithDifferentJobsEndAndNameTheField) {
  Job job = SmallJob();
  job.spec = SpecWith(GetParam(), false);
  jobs_[1] = job;
  jobs_[1].spec = SpecWith(GetParam(), true);
  const auto result = RunSessions(job, 2);
  for (const auto& end : result->ends) {
    EXPECT_EQ(end.status().code(), absl::StatusCode::kFailedPrecondition) << end.status();
    EXPECT_THAT(std::string(end.status().message()),
                HasSubstr("the ranks differ in the job: " + NameOf(GetParam()) + ": rank 0 has "));
  }
}

using SharedDataTest = SessionTest;

// The path is the same, but the file on another node differs.
TEST_F(SharedDataTest, RanksThatSeeFilesOfAnotherSizeEndAndNameTheDataSet) {
  const Job job = SmallJob();
  jobs_[1] = job;
  WriteTokens("more.bin", 1300);
  jobs_[1].data.train = TokenFiles{{folder_ / "more.bin"}};
  const auto result = RunSessions(job, 2);
  for (const auto& end : result->ends) {
    EXPECT_EQ(end.status().code(), absl::StatusCode::kFailedPrecondition) << end.status();
    EXPECT_THAT(
        std::string(end.status().message()),
        HasSubstr("the ranks differ in the data: data.train: rank 0 has 149 samples, rank 1 has "));
  }
}

// No rank waits for the other, and both name the fault.
TEST_F(SharedDataTest, WhatOneRankFindsInItsPartEndsAllRanksForGood) {
  std::fstream file(folder_ / "train.bin", std::ios::in | std::ios::out | std::ios::binary);
  const uint16_t beyond = 29;
  file.seekp(2 * 700).write(reinterpret_cast<const char*>(&beyond), 2).flush();
  const auto result = RunSessions(SmallJob(), 2);
  for (const auto& end : result->ends) {
    EXPECT_EQ(end.status().message(),
              "rank 1: data.train: " + (folder_ / "train.bin").string() +
                  ": token 29 at byte offset 1400 (index 700) is beyond the model's vocabulary of "
                  "29");
    EXPECT_EQ(Classify(end.status(), Phase::kCreate), FailureKind::kPermanent);
  }
}

TEST_F(SharedDataTest, AFileThatOneRankDoesNotHaveEndsAllRanks) {
  for (const bool validate : {false, true}) {
    const Job job = SmallJob();
    jobs_[1] = job;
    (validate ? jobs_[1].data.validate : jobs_[1].data.train) = TokenFiles{{folder_ / "none.bin"}};
    const auto result = RunSessions(job, 2);
    EXPECT_EQ(Classify(result->ends[0].status(), Phase::kCreate), FailureKind::kConsequence);
    EXPECT_EQ(result->ends[1].status().code(), absl::StatusCode::kNotFound);
    for (const auto& end : result->ends) {
      EXPECT_THAT(std::string(end.status().message()),
                  HasSubstr(validate ? "rank 1: data.validate: " : "rank 1: data.train: "));
    }
  }
}

class OwnTokenizersTest : public SharedDataTest {
 protected:
  // Returns a job of two ranks with one file each. `hashes`: those of the files' tokenizers; ""
  // without a sidecar.
  Job JobWith(const std::vector<std::string>& hashes) {
    TokenFiles own{.per_rank = true};
    for (const std::string& hash : hashes) {
      const std::string name = absl::StrCat("own", own.paths.size(), ".bin");
      WriteTokens(name, 1300);
      own.paths.push_back(folder_ / name);
      std::filesystem::remove(folder_ / (name + ".tokenizer.json"));
      if (hash.empty()) continue;
      std::ofstream(folder_ / (name + ".tokenizer.json"))
          << R"({"format": "muster-tokens", "tokens": 1300, "dtype": "uint16", "vocab_size": 29,)"
          << R"( "tokenizer": {"path": "/t/)" << hash << R"(.json", "xxh3_128": ")" << hash
          << "\"}}";
    }
    Job job = SmallJob();
    job.data.train = own;
    return job;
  }
};

TEST_F(OwnTokenizersTest, FilesOfTwoRanksFromTwoTokenizersEndAllRanks) {
  const auto result = RunSessions(JobWith({"0a", "0b"}), 2);
  for (const auto& end : result->ends) {
    EXPECT_EQ(end.status().code(), absl::StatusCode::kInvalidArgument) << end.status();
    EXPECT_THAT(std::string(end.status().message()),
                HasSubstr("data.train of rank 0 with /t/0a.json (XXH3 0a), data.train of rank 1 "
                          "with /t/0b.json (XXH3 0b)"));
  }
}

TEST_F(OwnTokenizersTest, ARankWhoseFileHasNoSidecarTakesTheOthersTokenizer) {
  for (const std::vector<std::string>& hashes :
       std::vector<std::vector<std::string>>{{"0a", "0a"}, {"", "0a"}, {"0a", ""}}) {
    const auto result = RunSessions(JobWith(hashes), 2);
    for (const auto& end : result->ends) EXPECT_TRUE(end.ok()) << end.status();
  }
}

TEST_F(OwnTokenizersTest, TheExportOfTheBestCheckpointNamesTheTokenizer) {
  Job job = JobWith({"0a", "0a"});
  job.stages = {FitStage{2, 1}};
  std::get<FitStage>(job.stages[0]).passes.keep_best = Criterion{};
  job.checkpoint = Every(0);
  const std::string path = folder_ / "model.safetensors";
  job.weights_export = {.path = path, .from = ExportConfig::From::kBest};
  const auto result = RunSessions(job, 2);
  for (const auto& end : result->ends) EXPECT_TRUE(end.ok()) << end.status();
  const auto file = safetensors::File::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->header().metadata.at(exports::kTokenizerKey), "/t/0a.json");
}

INSTANTIATE_TEST_SUITE_P(
    Schema, AgreementSessionTest, testing::ValuesIn(AllPaths()), [](const auto& info) {
      std::string name = NameOf(info.param);
      std::replace_if(name.begin(), name.end(), [](char c) { return !std::isalnum(c); }, '_');
      return name;
    });

}  // namespace
}  // namespace muster::train
