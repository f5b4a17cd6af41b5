#include "worker/checkpoint/load_weights.h"

#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "ATen/core/IListRef.h"
#include "ATen/core/Tensor.h"
#include "ATen/ops/cat.h"
#include "ATen/ops/full.h"
#include "absl/status/status.h"
#include "common/files/files.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/checkpoint/weights_fixture.h"
#include "worker/models/deferred_values.h"

namespace muster::checkpoint {
namespace {

using ::testing::HasSubstr;

TEST_F(WeightsTest, OtherFloatingPointTypesAreConverted) {
  for (const at::ScalarType type : {at::kDouble, at::kHalf, at::kBFloat16}) {
    auto tensors = Tensors(*Gpt2(1));
    for (auto& [name, tensor] : tensors) tensor = at::full(tensor.sizes(), 1.5, type);
    const auto model = Gpt2(2);
    ASSERT_TRUE(Load(File(tensors), *model).ok());
    for (const auto& parameter : model->Parameters()) {
      EXPECT_EQ(parameter.tensor.scalar_type(), at::kFloat);
      EXPECT_TRUE(parameter.tensor.eq(1.5).all().item<bool>());
      EXPECT_TRUE(parameter.tensor.requires_grad());
    }
  }
}

TEST_F(WeightsTest, FilesOfTheBareTransformerWithOldBuffersLoad) {
  auto tensors = Tensors(*Gpt2(1), "transformer.");
  tensors.emplace_back("h.0.attn.bias", at::full({1, 1, 3, 3}, 1, at::kLong));
  tensors.emplace_back("lm_head.weight", tensors[0].second.clone());
  const auto model = Gpt2(2);
  ASSERT_TRUE(Load(File(tensors), *model).ok());
  EXPECT_TRUE(Same(*model, *Gpt2(1)));
}

TEST_F(WeightsTest, AModelWithFewerPositionsTakesTheFirstOnes) {
  auto tensors = Tensors(*Gpt2(1));
  const at::Tensor positions = tensors[1].second;
  ASSERT_EQ(tensors[1].first, "transformer.wpe.weight");
  tensors[1].second = at::cat({positions, at::full({2, positions.size(1)}, 9, at::kFloat)});
  const auto model = Gpt2(2);
  const auto loaded = LoadWeights({.path = File(tensors)}, *model);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_TRUE(Same(*model, *Gpt2(1)));
  EXPECT_THAT(Describe(loaded->report()),
              HasSubstr("of these shortened: 1 ('transformer.wpe.weight' from"));
  // Only rows of positions, and only at the end.
  tensors[1].second = positions.narrow(0, 0, 1);
  EXPECT_THAT(ErrorOf(File(tensors), *Gpt2(2)), HasSubstr("expected the shape"));
  tensors[1].second = positions;
  tensors[0].second = at::cat({tensors[0].second, tensors[0].second});
  EXPECT_THAT(ErrorOf(File(tensors), *Gpt2(2)), HasSubstr("expected the shape"));
}

TEST_F(WeightsTest, ShardedWeightsLoadThroughTheirIndex) {
  const auto model = Gpt2(2);
  ASSERT_TRUE(Load(ShardedFile(Tensors(*Gpt2(1), "transformer.")), *model).ok());
  EXPECT_TRUE(Same(*model, *Gpt2(1)));
}

TEST_F(WeightsTest, ProblemsOfShardedWeightsNameTheFile) {
  auto tensors = Tensors(*Gpt2(1));
  tensors[0].second = at::full({4, 2}, 1, at::kFloat);
  tensors[1].first = "transformer.wpe.wieght";
  const std::string path = ShardedFile(tensors);
  EXPECT_EQ(ErrorOf(path, *Gpt2(2)),
            path +
                ": 'transformer.wte.weight' in even.safetensors: expected the shape [5, 2], found "
                "[4, 2]; "
                "unexpected 'transformer.wpe.wieght' in odd.safetensors; missing "
                "'transformer.wpe.weight'");
  std::filesystem::remove(dir_.Path("odd.safetensors"));
  const absl::Status status = Load(path, *Gpt2(2));
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr(dir_.Path("odd.safetensors")));
}

TEST_F(WeightsTest, OnlyTheCountOfBatchesMayBeMissing) {
  const auto value = [](double x) { return at::full({3}, x, at::kFloat); };
  const Normed model(1);
  ASSERT_TRUE(Load(File({{"bn.weight", value(3)},
                         {"bn.running_mean", value(4).to(at::kHalf)},
                         {"bn.running_var", value(5)}}),
                   model)
                  .ok());
  EXPECT_EQ(model.Buffers()[0].tensor[1].item<float>(), 4);
  EXPECT_EQ(model.Buffers()[2].tensor.item<int64_t>(), 1);
  const absl::Status status = Load(
      File({{"bn.weight", value(6)}, {"bn.num_batches_tracked", at::full({}, 2.0, at::kFloat)}}),
      model);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(
      std::string(status.message()),
      dir_.Path("w.safetensors") +
          ": 'bn.num_batches_tracked': expected I64, found F32; missing 'bn.running_mean'; missing "
          "'bn.running_var'");
  EXPECT_EQ(model.Parameters()[0].tensor[0].item<float>(), 3);
}

TEST_F(WeightsTest, UntiedFileIsRefusedByATiedModel) {
  auto tensors = Tensors(*Gpt2(1));
  tensors.emplace_back("lm_head.weight", tensors[0].second.add(1));
  EXPECT_THAT(std::string(Load(File(tensors), *Gpt2(2)).message()),
              HasSubstr("'transformer.wte.weight' and 'lm_head.weight' are one parameter of this "
                        "model, but differ in the file (with 'tied: false' the model has both)"));
}

TEST_F(WeightsTest, ATiedFileSaysWhatAnUntiedModelNeeds) {
  const auto untied = Gpt2(2, /*tied=*/false);
  EXPECT_THAT(std::string(Load(File(Tensors(*Gpt2(1))), *untied).message()),
              HasSubstr("missing 'lm_head.weight' (in a file without it the output layer is the "
                        "token embedding: model.gpt2.tied: true)"));
}

TEST_F(WeightsTest, EveryProblemIsReportedAtOnceCappedAtThree) {
  auto tensors = Tensors(*Gpt2(1));
  tensors[0].second = at::full({4, 2}, 1, at::kFloat);
  tensors[1].first = "transformer.wpe.wieght";
  tensors[2].second = tensors[2].second.to(at::kLong);
  EXPECT_EQ(
      ErrorOf(File(tensors), *Gpt2(2)),
      dir_.Path("w.safetensors") +
          ": 'transformer.wte.weight': expected the shape [5, 2], found [4, 2]; unexpected "
          "'transformer.wpe.wieght'; 'transformer.h.0.ln_1.weight': expected F64, F32, F16 or "
          "BF16, found I64; and 1 more");
  tensors = Tensors(*Gpt2(1));
  tensors.pop_back();
  EXPECT_THAT(ErrorOf(File(tensors), *Gpt2(2)), HasSubstr(": missing 'transformer.ln_f.bias'"));
}

TEST_F(WeightsTest, NumbersThatAreNotFiniteAreRefused) {
  auto tensors = Tensors(*Gpt2(1));
  tensors[1].second = tensors[1].second.to(at::kHalf);
  tensors[1].second.data_ptr<at::Half>()[3] = std::numeric_limits<float>::infinity();
  EXPECT_THAT(
      std::string(Load(File(tensors), *Gpt2(2)).message()),
      HasSubstr("'transformer.wpe.weight': expected finite numbers, found inf as number 3"));
}

TEST_F(WeightsTest, BrokenAndMissingFilesAreToldApart) {
  const std::string path = File(Tensors(*Gpt2(1)));
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 1);
  EXPECT_EQ(Load(path, *Gpt2(2)).code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(Load(dir_.Path("none"), *Gpt2(2)).code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(Load(dir_.path(), *Gpt2(2)).message()),
              HasSubstr("expected a regular file, found a directory"));
}

TEST_F(WeightsTest, TypesThatAreNoWeightsAreRefusedByName) {
  auto tensors = Tensors(*Gpt2(1));
  tensors[1].second = tensors[1].second.to(at::kFloat8_e4m3fn);
  EXPECT_THAT(ErrorOf(File(tensors), *Gpt2(2)),
              HasSubstr("'transformer.wpe.weight': expected F64, F32, F16 or BF16, found F8_E4M3"));
}

TEST_F(WeightsTest, NumbersThatFloat32CannotHoldAreRefused) {
  auto tensors = Tensors(*Gpt2(1));
  tensors[1].second = tensors[1].second.to(at::kDouble);
  tensors[1].second.data_ptr<double>()[4] = -1e300;
  EXPECT_THAT(std::string(Load(File(tensors), *Gpt2(2)).message()),
              HasSubstr("'transformer.wpe.weight': expected numbers that float32 can hold, found "
                        "-1e+300 as number 4"));
}

// A model without memory for its parameters, and their values.
struct Deferred {
  explicit Deferred(bool tied = true) {
    const models::DeferredValues::Scope scope(&values);
    model = Gpt2(2, tied);
  }
  const at::Tensor Tensor(const std::string& name) const {
    for (const auto& parameter : model->Parameters()) {
      if (parameter.name == name) return parameter.tensor;
    }
    return {};
  }

  models::DeferredValues values;
  std::unique_ptr<models::Model> model;
};

TEST_F(WeightsTest, OfDeferredValuesOnlyTheRangesThatAreAskedForAreRead) {
  const auto saved = Gpt2(1);
  auto tensors = Tensors(*saved);
  tensors[1].second = tensors[1].second.to(at::kHalf);
  const std::string path = File(tensors);
  Deferred to;
  const auto loaded = LoadWeights({.path = path}, *to.model, &to.values);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->bytes_read(), 0);
  const at::Tensor wte = to.Tensor("transformer.wte.weight");
  EXPECT_TRUE(to.values.Range(wte, 3, 8).equal(tensors[0].second.flatten().slice(0, 3, 8)));
  EXPECT_EQ(loaded->bytes_read(), 5 * 4);
  const at::Tensor wpe = to.Tensor("transformer.wpe.weight");
  EXPECT_TRUE(
      to.values.Range(wpe, 1, 2).equal(tensors[1].second.to(at::kFloat).flatten().slice(0, 1, 2)));
  EXPECT_EQ(loaded->bytes_read(), 5 * 4 + 2);
  EXPECT_TRUE(loaded->status().ok());
}

TEST_F(WeightsTest, WhatHasMemoryIsReadOnce) {
  const auto loaded = LoadWeights({.path = File(Tensors(*Gpt2(1)))}, *Gpt2(2));
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  int64_t bytes = 0;
  for (const auto& parameter : Gpt2(1)->Parameters()) bytes += parameter.tensor.nbytes();
  EXPECT_EQ(loaded->bytes_read(), bytes);
}

TEST_F(WeightsTest, DeferredValuesAreCheckedWhereTheyAreRead) {
  auto tensors = Tensors(*Gpt2(1));
  tensors[1].second = tensors[1].second.clone();
  tensors[1].second.data_ptr<float>()[3] = std::numeric_limits<float>::quiet_NaN();
  const std::string path = File(tensors);
  Deferred to;
  const auto loaded = LoadWeights({.path = path}, *to.model, &to.values);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  const at::Tensor wpe = to.Tensor("transformer.wpe.weight");
  to.values.Range(wpe, 0, 3);
  to.values.Range(wpe, 4, 6);
  EXPECT_TRUE(loaded->status().ok()) << loaded->status();
  to.values.Range(wpe, 2, 5);
  EXPECT_EQ(loaded->status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(std::string(loaded->status().message()),
            path + ": 'transformer.wpe.weight': expected finite numbers, found nan as number 3");
}

TEST_F(WeightsTest, TwoNamesOfADeferredParameterAreComparedWhereTheyAreRead) {
  auto tensors = Tensors(*Gpt2(1));
  tensors.emplace_back("lm_head.weight", tensors[0].second.clone());
  tensors.back().second.data_ptr<float>()[7] += 1;
  Deferred to;
  const auto loaded = LoadWeights({.path = File(tensors)}, *to.model, &to.values);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  const at::Tensor wte = to.Tensor("transformer.wte.weight");
  to.values.Range(wte, 0, 7);
  EXPECT_TRUE(loaded->status().ok()) << loaded->status();
  to.values.Range(wte, 7, 8);
  EXPECT_THAT(std::string(loaded->status().message()),
              HasSubstr("'transformer.wte.weight' and 'lm_head.weight' are one parameter"));
}

// The backbone comes from a file, and the head is the model's own.
TEST_F(WeightsTest, WhatIsNotTakenKeepsItsInitialValue) {
  const auto saved = Gpt2(1, /*tied=*/false);
  const WeightsOptions options{.path = File(Tensors(*saved)),
                               .take = {"transformer.*"},
                               .missing = WeightsOptions::Missing::kInitial};
  const auto model = Gpt2(2, /*tied=*/false), initial = Gpt2(2, /*tied=*/false);
  const auto loaded = LoadWeights(options, *model);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  Deferred to(/*tied=*/false);
  ASSERT_TRUE(LoadWeights(options, *to.model, &to.values).ok());
  const auto parameters = model->Parameters();
  for (size_t i = 0; i < parameters.size(); ++i) {
    const auto& from = parameters[i].name == "lm_head.weight" ? *initial : *saved;
    EXPECT_TRUE(parameters[i].tensor.equal(from.Parameters()[i].tensor)) << parameters[i].name;
    EXPECT_TRUE(to.values.Of(to.model->Parameters()[i].tensor).equal(parameters[i].tensor));
  }
  EXPECT_EQ(Describe(loaded->report()),
            "tensors taken: 16 ('transformer.wte.weight', 'transformer.wpe.weight', "
            "'transformer.h.0.ln_1.weight' and 13 more); of these renamed: 0; of these "
            "shortened: 0; ignored: 1 ('lm_head.weight'); left at their initial values: 1 "
            "('lm_head.weight')");
}

TEST_F(WeightsTest, NamesOfTheFileAreRenamed) {
  auto tensors = Tensors(*Gpt2(1), "transformer.");
  for (auto& [name, tensor] : tensors) name = "backbone." + name;
  const WeightsOptions options{.path = File(tensors), .rename = {{"backbone.*", "transformer.*"}}};
  const auto model = Gpt2(2);
  const auto loaded = LoadWeights(options, *model);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_TRUE(Same(*model, *Gpt2(1)));
  EXPECT_THAT(
      Describe(loaded->report()),
      HasSubstr("of these renamed: 16 ('backbone.wte.weight' to 'transformer.wte.weight', "));
  tensors[1].second = at::full({2, 2}, 1, at::kFloat);
  EXPECT_THAT(ErrorOf({.path = File(tensors), .rename = options.rename}, *Gpt2(2)),
              HasSubstr("'backbone.wpe.weight', now 'transformer.wpe.weight': expected the shape "
                        "[3, 2], found [2, 2]"));
}

TEST_F(WeightsTest, MistakesInNamesAreReportedTogether) {
  const std::string path = File(Tensors(*Gpt2(1)));
  EXPECT_EQ(ErrorOf({.path = path, .take = {"transfomer.*", "transformer.h.*"}}, *Gpt2(2)),
            path +
                ": take: 'transfomer.*' matches no tensor of the file; did you mean "
                "'transformer.*'?; missing 'transformer.wte.weight'; missing "
                "'transformer.wpe.weight'; and 2 more");
  EXPECT_EQ(ErrorOf({.path = path,
                     .take = {"transformer.ln_f.*"},
                     .rename = {{"transformer.ln_f.*", "ln_g.*"}},
                     .missing = WeightsOptions::Missing::kInitial},
                    *Gpt2(2)),
            path +
                ": unexpected 'transformer.ln_f.weight', now 'ln_g.weight'; unexpected "
                "'transformer.ln_f.bias', now 'ln_g.bias'");
}

TEST_F(WeightsTest, AFileThatGivesTheModelNothingIsRefused) {
  const std::string path = File({{"h.0.attn.bias", at::full({1, 1, 3, 3}, 1, at::kLong)}});
  EXPECT_EQ(ErrorOf({.path = path, .missing = WeightsOptions::Missing::kInitial}, *Gpt2(2)),
            path + ": the model has none of the tensors that are taken");
}

// Weights with other names may belong to another kind of model.
TEST_F(WeightsTest, AConfigBesideRenamedWeightsIsOnlyReported) {
  auto tensors = Tensors(*Gpt2(1));
  const std::string path = File(tensors, "model.safetensors");
  ASSERT_TRUE(files::WriteAtomically(dir_.Path("config.json"), R"({"n_head": 2})").ok());
  EXPECT_THAT(ErrorOf({.path = path, .take = {"*"}}, *Gpt2(2)), HasSubstr("n_head: expected 1"));
  tensors[0].first = "embedding";
  File(tensors, "model.safetensors");
  const auto loaded =
      LoadWeights({.path = path, .rename = {{"embedding", "transformer.wte.weight"}}}, *Gpt2(2));
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_THAT(loaded->report().other_config, HasSubstr("n_head: expected 1, found 2"));
}

}  // namespace
}  // namespace muster::checkpoint
