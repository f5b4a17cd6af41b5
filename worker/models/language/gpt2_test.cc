#include <cmath>
#include <map>
#include <set>
#include <string>

#include "ATen/CPUGeneratorImpl.h"
#include "ATen/core/Tensor.h"
#include "ATen/ops/log_softmax.h"
#include "ATen/ops/tensor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "worker/models/language/language_model_maker.h"
#include "worker/models/seed.h"
#include "worker/models/spec_from_json.h"

namespace muster::models {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const LanguageModelMaker& Maker() {
  static const auto& maker = *new LanguageModelMaker(
      "gpt2", {{"vocab_size", 17}, {"context", 6}, {"layers", 2}, {"heads", 2}, {"width", 8}});
  return maker;
}
nlohmann::json Small() { return Maker().small(); }
nlohmann::json With(const std::string& key, const nlohmann::json& value) {
  return Maker().With(key, value);
}
std::unique_ptr<Model> Make(const nlohmann::json& options, uint64_t seed = 1) {
  return Maker().Make(options, seed);
}

at::Tensor Train(Model& model, const at::Tensor& tokens, uint64_t seed) {
  ForwardContext context(Mode::kTrain, MakeGenerator(seed));
  return model.Logits(tokens, context);
}

TEST(Gpt2Test, ParametersHaveHuggingFaceNamesInForwardOrder) {
  std::vector<std::string> names;
  for (const Parameter& parameter : Make(With("layers", 1))->Parameters()) {
    names.push_back(parameter.name);
  }
  EXPECT_THAT(names,
              ElementsAre("transformer.wte.weight", "transformer.wpe.weight",
                          "transformer.h.0.ln_1.weight", "transformer.h.0.ln_1.bias",
                          "transformer.h.0.attn.c_attn.weight", "transformer.h.0.attn.c_attn.bias",
                          "transformer.h.0.attn.c_proj.weight", "transformer.h.0.attn.c_proj.bias",
                          "transformer.h.0.ln_2.weight", "transformer.h.0.ln_2.bias",
                          "transformer.h.0.mlp.c_fc.weight", "transformer.h.0.mlp.c_fc.bias",
                          "transformer.h.0.mlp.c_proj.weight", "transformer.h.0.mlp.c_proj.bias",
                          "transformer.ln_f.weight", "transformer.ln_f.bias"));
}

TEST(Gpt2Test, UntiedModelHasAHeadOfItsOwn) {
  const auto model = Make(With("tied", false));
  EXPECT_EQ(model->Parameters().back().name, "lm_head.weight");
  EXPECT_EQ(model->Parameters().size(), Make(Small())->Parameters().size() + 1);
}

TEST(Gpt2Test, ShapesFollowConv1D) {
  const auto tensors = ByName(*Make(With("inner", 20)));
  EXPECT_EQ(tensors.at("transformer.h.1.attn.c_attn.weight").sizes(), (at::IntArrayRef{8, 24}));
  EXPECT_EQ(tensors.at("transformer.h.1.mlp.c_fc.weight").sizes(), (at::IntArrayRef{8, 20}));
  EXPECT_EQ(tensors.at("transformer.h.1.mlp.c_proj.weight").sizes(), (at::IntArrayRef{20, 8}));
  EXPECT_EQ(tensors.at("transformer.wpe.weight").sizes(), (at::IntArrayRef{6, 8}));
}

TEST(Gpt2Test, InitialValuesDependOnSeedAndNameOnly) {
  const auto one = ByName(*Make(Small()));
  const auto deep = ByName(*Make(With("layers", 3)));
  const auto other = ByName(*Make(Small(), 2));
  for (const auto& [name, tensor] : one) {
    EXPECT_TRUE(tensor.requires_grad() && tensor.is_leaf() && tensor.is_contiguous()) << name;
    if (name.find("c_proj.weight") == std::string::npos) {  // these are scaled by depth
      EXPECT_TRUE(tensor.equal(deep.at(name))) << name;
    }
    if (name.find("bias") == std::string::npos && name.find("ln_") == std::string::npos) {
      EXPECT_FALSE(tensor.equal(other.at(name))) << name;
    }
  }
  EXPECT_FALSE(
      one.at("transformer.h.0.mlp.c_fc.weight").equal(one.at("transformer.h.1.mlp.c_fc.weight")));
}

TEST(Gpt2Test, InitialDistributionIsHuggingFaces) {
  const auto tensors = ByName(
      *Make({{"vocab_size", 64}, {"context", 64}, {"layers", 8}, {"heads", 2}, {"width", 64}}));
  const auto deviation = [&](const std::string& name) {
    return std::sqrt(tensors.at(name).square().mean().item<double>());
  };
  EXPECT_NEAR(deviation("transformer.wte.weight"), 0.02, 0.002);
  EXPECT_NEAR(deviation("transformer.h.0.mlp.c_fc.weight"), 0.02, 0.002);
  EXPECT_NEAR(deviation("transformer.h.0.mlp.c_proj.weight"), 0.005, 0.0005);
  EXPECT_NEAR(deviation("transformer.h.7.attn.c_proj.weight"), 0.005, 0.0005);
  EXPECT_EQ(deviation("transformer.h.0.attn.c_attn.bias"), 0);
  EXPECT_TRUE(tensors.at("transformer.ln_f.weight").eq(1).all().item<bool>());
}

TEST(Gpt2Test, LossIsTheMeanOverAllTokens) {
  const auto model = Make(Small());
  const Batch batch = {Tokens(3, 6), Tokens(3, 6).roll(1, 1)};
  ForwardContext context(Mode::kTrain, MakeGenerator(0));
  const LossOutput loss = model->Loss(batch, context);
  EXPECT_EQ(loss.terms, 18);
  const at::Tensor expected = at::log_softmax(Evaluate(*model, batch.inputs), -1)
                                  .gather(-1, batch.targets.unsqueeze(-1))
                                  .mean()
                                  .neg();
  EXPECT_NEAR(loss.mean_loss.item<float>(), expected.item<float>(), 1e-6);
}

TEST(Gpt2Test, DropoutDrawsFromTheRanksGeneratorOnly) {
  const auto model = Make(With("dropout", 0.3));
  const at::Tensor global = at::detail::getDefaultCPUGenerator().get_state();
  const at::Tensor a = Train(*model, Tokens(2, 6), 5), b = Train(*model, Tokens(2, 6), 5);
  EXPECT_TRUE(a.equal(b));
  EXPECT_FALSE(a.equal(Train(*model, Tokens(2, 6), 6)));
  EXPECT_FALSE(a.equal(Evaluate(*model, Tokens(2, 6))));
  EXPECT_TRUE(Evaluate(*model, Tokens(2, 6)).equal(Evaluate(*Make(Small()), Tokens(2, 6))));
  EXPECT_TRUE(global.equal(at::detail::getDefaultCPUGenerator().get_state()));
}

TEST(Gpt2Test, AttentionWithDropoutIsTheFusedOneWhenNothingIsDropped) {
  const auto model = Make(With("dropout", 1e-12));
  for (const Parameter& parameter : model->Parameters()) {
    parameter.tensor.detach().mul_(10);  // far from uniform attention
  }
  EXPECT_TRUE(Train(*model, Tokens(2, 6), 5).allclose(Evaluate(*model, Tokens(2, 6)), 1e-4, 1e-4));
}

TEST(Gpt2Test, DocumentsAreKeptApartWithDropout) {
  const auto model = Make(With("dropout", 1e-12));
  for (const Parameter& parameter : model->Parameters()) parameter.tensor.detach().mul_(10);
  const at::Tensor tokens = Tokens(2, 6);
  const Batch packed = {
      .inputs = tokens,
      .targets = tokens,
      .further = {at::tensor({0, 0, 1, 2, 0, 1, 0, 1, 2, 3, 0, 1}, at::kLong).view({2, 6})}};
  ForwardContext training(Mode::kTrain, MakeGenerator(5)), quiet(Mode::kEvaluate, MakeGenerator(0));
  const at::Tensor expected = model->Logits(packed, quiet);
  EXPECT_TRUE(model->Logits(packed, training).allclose(expected, 1e-4, 1e-4));
  EXPECT_FALSE(Evaluate(*model, tokens).allclose(expected, 1e-2, 1e-2));
}

TEST(Gpt2Test, FlopsAreThoseOfTheMatrixProducts) {
  // A block: 6 positions times 2 * (8 * 24 + 8 * 8 + 2 * 8 * 32), and 2 * 2 * 6 * 6 * 8 for
  // attention.
  EXPECT_EQ(Make(Small())->ForwardFlops(), 2 * (6 * 2 * 768 + 1152) + 6 * 2 * 8 * 17);
}

TEST(Gpt2Test, WeightNamesOfOtherWritersAreUnderstood) {
  const auto tied = Make(Small());
  const auto untied = Make(With("tied", false));
  EXPECT_EQ(tied->ResolveWeight("h.1.ln_1.bias").parameter, "transformer.h.1.ln_1.bias");
  EXPECT_EQ(tied->ResolveWeight("lm_head.weight").parameter, "transformer.wte.weight");
  EXPECT_EQ(untied->ResolveWeight("lm_head.weight").parameter, "lm_head.weight");
  EXPECT_EQ(tied->ResolveWeight("h.0.attn.bias").kind, WeightName::Kind::kIgnored);
  EXPECT_EQ(tied->ResolveWeight("transformer.h.0.attn.masked_bias").kind,
            WeightName::Kind::kIgnored);
  EXPECT_EQ(tied->ResolveWeight("h.0.attn.c_attn.bias").kind, WeightName::Kind::kParameter);
  EXPECT_EQ(tied->ResolveWeight("h.2.ln_1.bias").kind, WeightName::Kind::kUnknown);
}

TEST(Gpt2Test, BatchesThatDoNotFitAreRefused) {
  const auto model = Make(Small());
  EXPECT_TRUE(model->CheckBatch({Tokens(2, 6), Tokens(2, 6)}).ok());
  EXPECT_EQ(
      std::string(model->CheckBatch({Tokens(2, 7), Tokens(2, 7)}).message()),
      "batch for gpt2: expected inputs and targets (and positions in documents) Long [B, C] with "
      "C <= 6, found inputs Long [2, 7] and targets Long [2, 7]");
  EXPECT_FALSE(model->CheckBatch({Tokens(2, 6), {}}).ok());
  EXPECT_FALSE(model->CheckBatch({Tokens(2, 6), Tokens(2, 5)}).ok());
}

TEST(SeedTest, ForwardSeedsDifferInEveryPart) {
  std::set<uint64_t> seeds;
  for (uint64_t seed : {1, 2}) {
    for (int64_t step : {0, 1}) {
      for (int64_t micro : {0, 1}) {
        for (int64_t rank : {0, 1}) seeds.insert(SeedForForward(seed, step, micro, rank));
      }
    }
  }
  EXPECT_EQ(seeds.size(), 16u);
}

}  // namespace
}  // namespace muster::models
