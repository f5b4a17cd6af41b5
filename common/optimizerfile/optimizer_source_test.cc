#include "common/optimizerfile/optimizer_source.h"

#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/files/files.h"
#include "common/files/temp_dir.h"
#include "common/manifest/manifest.h"
#include "common/optimizerfile/optimizer_file.h"
#include "common/torchfile/pickle_writer.h"
#include "common/torchfile/torch_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::optimizerfile {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using torchfile::PickleWriter;

// The job's optimizer: a and c in one group, b in another.
const manifest::OptimizerRecord kOptimizer = {
    "sgd", {{{"lr", {0.5}}, {"momentum", {0.9}}}, {{"lr", {0.25}}, {"momentum", {0.9}}}}};
const std::vector<manifest::ParameterRecord> kParameters = {{"a", {2}, "F32", true, true, 0},
                                                            {"b", {3}, "F32", true, true, 1},
                                                            {"c", {1}, "F32", true, true, 0}};

// The first element.
float First(const OptimizerSource::Value& value) {
  float first = 0;
  std::memcpy(&first, std::get<StoredValues>(value).data, sizeof(first));
  return first;
}

class OptimizerSourceTest : public ::testing::Test {
 protected:
  // Writes a file whose storage i has the number i + 1.
  void Write(const torchfile::TorchFile& file, int storages) {
    std::string bytes(file.size(), '\0');
    for (int i = 0; i < storages; ++i) {
      const float number = static_cast<float>(i + 1);
      bytes.replace(file.storage_offset(i), sizeof(number),
                    std::string(reinterpret_cast<const char*>(&number), sizeof(number)));
    }
    for (const auto& [offset, part] : file.Fragments(std::vector<uint32_t>(storages))) {
      bytes.replace(offset, part.size(), part);
    }
    ASSERT_TRUE(files::WriteAtomically(path_, bytes).ok());
  }

  // Writes a state_dict with these groups, and one number as the momentum of each of `keys`.
  void WriteState(const std::vector<int64_t>& keys,
                  const std::vector<std::function<void(PickleWriter&)>>& groups) {
    PickleWriter pickle;
    pickle.BeginDict();
    pickle.Text("state");
    pickle.BeginDict();
    for (size_t i = 0; i < keys.size(); ++i) {
      pickle.Int(keys[i]);
      pickle.BeginDict();
      pickle.Text("momentum_buffer");
      pickle.Float32Tensor(absl::StrCat(i), {1});
      pickle.EndDict();
    }
    pickle.EndDict();
    pickle.Text("param_groups");
    pickle.BeginList();
    for (const auto& group : groups) {
      pickle.BeginDict();
      group(pickle);
      pickle.EndDict();
    }
    pickle.EndList();
    pickle.EndDict();
    Write(torchfile::TorchFile(pickle.Finish(), std::vector<uint64_t>(keys.size(), sizeof(float))),
          static_cast<int>(keys.size()));
  }

  absl::StatusOr<OptimizerSource> Open() {
    return OptimizerSource::Open(path_, kOptimizer, kParameters);
  }
  std::string Error() {
    const auto source = Open();
    EXPECT_EQ(source.status().code(), absl::StatusCode::kInvalidArgument) << source.status();
    return std::string(source.status().message());
  }
  // The parameters in the order of their numbers.
  std::vector<std::string> Order() {
    const auto source = Open();
    EXPECT_TRUE(source.ok()) << source.status();
    std::vector<std::string> order(source->state().size());
    for (const auto& [name, slots] : source->state()) {
      order.at(static_cast<size_t>(First(slots.at("momentum_buffer"))) - 1) = name;
    }
    return order;
  }

  files::TempDir dir_;
  std::string path_ = dir_.Path("state.pt");
};

std::function<void(PickleWriter&)> Group(const std::vector<int64_t>& members,
                                         const std::vector<std::string>& names = {}) {
  return [=](PickleWriter& pickle) {
    pickle.Text("params");
    pickle.BeginList();
    for (const int64_t member : members) pickle.Int(member);
    pickle.EndList();
    if (names.empty()) return;
    pickle.Text("param_names");
    pickle.BeginList();
    for (const std::string& name : names) pickle.Text(name);
    pickle.EndList();
  };
}

TEST_F(OptimizerSourceTest, NamesCountMoreThanPositions) {
  WriteState({0, 1, 2}, {Group({0, 1, 2}, {"c", "a", "b"})});
  EXPECT_THAT(Order(), ElementsAre("c", "a", "b"));
}

TEST_F(OptimizerSourceTest, OneGroupWithoutNamesHasAllParametersInTheirOrder) {
  WriteState({0, 1, 2}, {Group({0, 1, 2})});
  EXPECT_THAT(Order(), ElementsAre("a", "b", "c"));
  WriteState({0, 1}, {Group({0, 1})});
  EXPECT_THAT(Error(), HasSubstr("param_groups[0] has no param_names, so its 2 parameters must be "
                                 "those of the job, which are 3"));
}

TEST_F(OptimizerSourceTest, SeveralGroupsWithoutNamesAreThoseOfTheJob) {
  WriteState({0, 1, 2}, {Group({0, 1}), Group({2})});
  EXPECT_THAT(Order(), ElementsAre("a", "c", "b"));
  WriteState({0, 1, 2}, {Group({0}), Group({1, 2})});
  EXPECT_THAT(Error(), HasSubstr("'s group 0 of 2"));
  WriteState({0, 1, 2}, {Group({0}), Group({1}), Group({2})});
  EXPECT_THAT(Error(), HasSubstr("param_groups[0] has no param_names"));
}

TEST_F(OptimizerSourceTest, AGroupOfTheJobThatTheFileLacksIsNotLeftOut) {
  WriteState({0, 1, 2}, {Group({0, 1}), Group({2})});
  manifest::OptimizerRecord three = kOptimizer;
  three.groups.push_back(three.groups[1]);
  const auto source = OptimizerSource::Open(path_, three, kParameters);
  EXPECT_THAT(std::string(source.status().message()), HasSubstr("has no param_names"));
}

TEST_F(OptimizerSourceTest, AParameterIsInTheGroupsOnceAndItsStateIsOfAGroup) {
  WriteState({0, 1}, {Group({0, 1}, {"a", "a"})});
  EXPECT_THAT(Error(),
              HasSubstr("param_groups[0].params[1]: parameter 'a' is in the groups twice"));
  WriteState({0, 1}, {Group({0, 0}, {"a", "b"})});
  EXPECT_THAT(Error(), HasSubstr("is in the groups twice"));
  WriteState({0, 7}, {Group({0, 1, 2})});
  EXPECT_THAT(Error(), HasSubstr("found a parameter that is in no group"));
  WriteState({0}, {Group({0, 1}, {"a"})});
  EXPECT_THAT(Error(), HasSubstr("expected 2 param_names, found 1"));
}

TEST_F(OptimizerSourceTest, AnotherKindOfOptimizerIsTold) {
  const auto of_kind = [](const std::string& kind) {
    return [kind](PickleWriter& pickle) {
      Group({0, 1, 2})(pickle);
      pickle.Text("optimizer");
      pickle.Text(kind);
    };
  };
  manifest::OptimizerRecord several = kOptimizer;
  several.kind = "adamw";
  several.kinds = {"sgd", "adamw"};
  WriteState({0, 1, 2}, {of_kind("lion")});
  EXPECT_THAT(OptimizerSource::Open(path_, several, kParameters)->differences(),
              ElementsAre("param_groups[0]: the file has the optimizer lion, the job has sgd; the "
                          "job's counts"));
  WriteState({0, 1, 2}, {of_kind("sgd")});
  EXPECT_THAT(OptimizerSource::Open(path_, several, kParameters)->differences(), IsEmpty());
}

TEST_F(OptimizerSourceTest, SettingsThatDifferAreTold) {
  const auto settings = [](PickleWriter& pickle) {
    Group({0, 1, 2})(pickle);
    pickle.Text("lr");
    pickle.Float(0.1);
    pickle.Text("initial_lr");
    pickle.Float(0.5);
    pickle.Text("momentum");
    pickle.Float(0.95);
    pickle.Text("unknown");
    pickle.None();
  };
  WriteState({}, {settings});
  EXPECT_THAT(Open()->differences(),
              ElementsAre("param_groups[0]: the file has momentum 0.95, the job has 0.9; the job's "
                          "counts"));
}

TEST_F(OptimizerSourceTest, StateWithoutAValueIsNoneAndAStepMayBeANumber) {
  PickleWriter pickle;
  pickle.BeginDict();
  pickle.Text("state");
  pickle.BeginDict();
  pickle.Int(0);
  pickle.BeginDict();
  pickle.Text("momentum_buffer");
  pickle.None();
  pickle.EndDict();
  pickle.Int(1);
  pickle.BeginDict();
  pickle.Text("step");
  pickle.Int(3);
  pickle.EndDict();
  pickle.EndDict();
  pickle.Text("param_groups");
  pickle.BeginList();
  pickle.BeginDict();
  Group({0, 1, 2})(pickle);
  pickle.EndDict();
  pickle.EndList();
  pickle.EndDict();
  Write(torchfile::TorchFile(pickle.Finish(), {}), 0);
  const auto source = Open();
  ASSERT_TRUE(source.ok()) << source.status();
  ASSERT_EQ(source->state().size(), 1) << "of b only";
  EXPECT_EQ(std::get<double>(source->state().at("b").at("step")), 3);
}

TEST_F(OptimizerSourceTest, WhatMusterWritesIsRead) {
  const Contents contents{.optimizer = kOptimizer,
                          .parameters = kParameters,
                          .items = {{"momentum_buffer", "a", {2}}, {"momentum_buffer", "c", {1}}}};
  for (const auto& [format, key] :
       std::vector<std::pair<Format, Key>>{{Format::kTorch, Key::kIndex},
                                           {Format::kTorch, Key::kName},
                                           {Format::kSafetensors, Key::kIndex}}) {
    const auto file = OptimizerFile::Plan(contents, format, key);
    ASSERT_TRUE(file.ok()) << file.status();
    std::string bytes(file->size(), '\0');
    for (const auto& [offset, part] : file->Fragments({0, 0})) {
      bytes.replace(offset, part.size(), part);
    }
    path_ = dir_.Path(format == Format::kTorch ? "state.pt" : "state.safetensors");
    ASSERT_TRUE(files::WriteAtomically(path_, bytes).ok());
    const auto source = Open();
    ASSERT_TRUE(source.ok()) << source.status();
    EXPECT_THAT(source->differences(), IsEmpty());
    ASSERT_EQ(source->state().size(), 2);
    const auto& stored = std::get<StoredValues>(source->state().at("a").at("momentum_buffer"));
    EXPECT_THAT(stored.shape, ElementsAre(2));
    EXPECT_EQ(First(stored), 0);
  }
}

}  // namespace
}  // namespace muster::optimizerfile
