#include "worker/optim/groups.h"

#include "gtest/gtest.h"

namespace muster::optim {
namespace {

const std::vector<std::string>& Names() {
  static const auto& names = *new std::vector<std::string>{
      "transformer.wte.weight", "transformer.h.0.ln_1.weight", "transformer.h.0.ln_1.bias",
      "transformer.h.1.ln_1.weight", "transformer.ln_f.bias"};
  return names;
}

const AdamWOptions kOwn = {.beta1 = 0.8, .eps = 1e-5, .weight_decay = 0.5};

absl::StatusOr<std::vector<ParameterSettings>> For(const std::vector<ParameterGroup>& groups) {
  return SettingsFor(Names(), kOwn, groups);
}

std::string ErrorOf(const std::vector<ParameterGroup>& groups) {
  const auto settings = For(groups);
  EXPECT_EQ(settings.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(settings.status().message());
}

TEST(SettingsFor, WithoutGroupsIsTheOptimizersOwn) {
  const auto settings = For({});
  ASSERT_TRUE(settings.ok());
  ASSERT_EQ(settings->size(), 5);
  for (const ParameterSettings& one : *settings) {
    EXPECT_EQ(one, (ParameterSettings{.options = kOwn, .lr = std::nullopt}));
  }
}

TEST(SettingsFor, ASettingIsThatOfTheLastGroupWhichMatchesAndSetsIt) {
  const auto settings = For({{.match = "*", .weight_decay = 0.25, .lr_scale = 0.25},
                             {.match = "*bias", .weight_decay = 0.0},
                             {.match = "transformer.h.*", .lr_scale = 2.0}});
  ASSERT_TRUE(settings.ok()) << settings.status();
  const double decays[] = {0.25, 0.25, 0.0, 0.25, 0.0};
  const double scales[] = {0.25, 2, 2, 2, 0.25};
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(WeightDecayOf((*settings)[i].options), decays[i]) << Names()[i];
    EXPECT_EQ((*settings)[i].lr_scale, scales[i]) << Names()[i];
  }
}

TEST(SettingsFor, AGroupChangesOnlyWhatItSets) {
  const auto settings = For(
      {{.match = "*ln*", .lr = 0.125, .betas = {{0.5, 0.75}}}, {.match = "*bias", .eps = 1e-3}});
  ASSERT_TRUE(settings.ok()) << settings.status();
  EXPECT_EQ((*settings)[0].options, OptimizerOptions(kOwn));
  EXPECT_EQ((*settings)[1].options,
            OptimizerOptions(
                AdamWOptions{.beta1 = 0.5, .beta2 = 0.75, .eps = 1e-5, .weight_decay = 0.5}));
  EXPECT_EQ((*settings)[2].options,
            OptimizerOptions(
                AdamWOptions{.beta1 = 0.5, .beta2 = 0.75, .eps = 1e-3, .weight_decay = 0.5}));
  EXPECT_EQ((*settings)[0].lr, std::nullopt);
  EXPECT_EQ((*settings)[1].lr, 0.125);
}

TEST(SettingsFor, AnotherOptimizerReplacesAllEarlierSettingsButTheScale) {
  const SgdOptions sgd = {.momentum = 0.5};
  const auto settings =
      For({{.match = "*", .weight_decay = 0.25, .lr_scale = 3, .lr = 7, .eps = 1e-2},
           {.match = "*bias", .optimizer = GroupOptimizer{0.125, sgd}},
           {.match = "*ln_f*", .weight_decay = 1, .momentum = 0.75}});
  ASSERT_TRUE(settings.ok()) << settings.status();
  EXPECT_EQ((*settings)[2], (ParameterSettings{.options = sgd, .lr = 0.125, .lr_scale = 3}));
  EXPECT_EQ(
      (*settings)[4],
      (ParameterSettings{
          .options = SgdOptions{.momentum = 0.75, .weight_decay = 1}, .lr = 0.125, .lr_scale = 3}));
  EXPECT_EQ(
      (*settings)[0],
      (ParameterSettings{.options = AdamWOptions{.beta1 = 0.8, .eps = 1e-2, .weight_decay = 0.25},
                         .lr = 7,
                         .lr_scale = 3}));
}

TEST(SettingsFor, RefusesWhatTheOptimizerOfAParameterDoesNotHave) {
  EXPECT_EQ(ErrorOf({{.match = "*"}, {.match = "*bias", .momentum = 0.5}}),
            "optimizer.groups[1].momentum: matches parameter 'transformer.h.0.ln_1.bias', whose "
            "optimizer adamw has no momentum; expected a pattern that matches only parameters of "
            "optimizers that have it");
  const std::vector<std::pair<OptimizerOptions, ParameterGroup>> unknown = {
      {SgdOptions{}, {.match = "*bias", .betas = {{0.5, 0.5}}}},
      {AdadeltaOptions{}, {.match = "*bias", .betas = {{0.5, 0.5}}}},
      {SgdOptions{}, {.match = "*bias", .eps = 1e-3}},
      {LionOptions{}, {.match = "*bias", .eps = 1e-3}},
      {AdadeltaOptions{}, {.match = "*bias", .momentum = 0.5}}};
  for (const auto& [options, group] : unknown) {
    const auto refused = For({{.match = "*h.0*", .optimizer = GroupOptimizer{1, options}}, group});
    EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument) << KindOf(options);
  }
}

TEST(SettingsFor, RefusesNesterovWithoutMomentum) {
  const SgdOptions sgd = {.momentum = 0.5, .nesterov = true};
  EXPECT_EQ(ErrorOf({{.match = "*bias", .optimizer = GroupOptimizer{1, sgd}},
                     {.match = "*ln_f.bias", .momentum = 0}}),
            "optimizer.groups: parameter 'transformer.ln_f.bias' has nesterov and momentum 0; "
            "expected a momentum above 0 with nesterov");
}

TEST(RateOf, IsExactlyTheOwnRateUntilTheJobsRateIsChanged) {
  // 1e-3 * (3e-4 / 3e-4) has these bits, but 3e-4 * (1e-3 / 3e-4) has not.
  const ParameterSettings own = {.options = kOwn, .lr = 1e-3};
  EXPECT_EQ(RateOf(own, 3e-4, 3e-4), 1e-3);
  EXPECT_DOUBLE_EQ(RateOf(own, 3e-4, 6e-4), 2e-3) << "the ratio is kept";
  const ParameterSettings scaled = {.options = kOwn, .lr = 1e-3, .lr_scale = 0.5};
  EXPECT_EQ(RateOf(scaled, 3e-4, 3e-4), 5e-4);
  const ParameterSettings of_job = {.options = kOwn, .lr = std::nullopt, .lr_scale = 0.5};
  EXPECT_EQ(RateOf(of_job, 3e-4, 1e-2), 5e-3);
}

TEST(SettingsFor, APatternThatMatchesNothingIsRefusedWithNearNames) {
  EXPECT_EQ(
      ErrorOf({{.match = "*"}, {.match = "transformer.wte.wieght"}}),
      "optimizer.groups[1].match: found 'transformer.wte.wieght', which matches none of the 5 "
      "parameters; near it: transformer.wte.weight; the parameters are: transformer.wte.weight, "
      "transformer.h.0.ln_1.weight, transformer.h.0.ln_1.bias and 2 more");
  EXPECT_EQ(
      ErrorOf({{.match = "transformer.ln_f.bia"}}),
      "optimizer.groups[0].match: found 'transformer.ln_f.bia', which matches none of the 5 "
      "parameters; near it: transformer.ln_f.bias; the parameters are: transformer.wte.weight, "
      "transformer.h.0.ln_1.weight, transformer.h.0.ln_1.bias and 2 more");
  EXPECT_EQ(
      ErrorOf({{.match = "model.*.ln_1.?"}}),
      "optimizer.groups[0].match: found 'model.*.ln_1.?', which matches none of the 5 parameters; "
      "the parameters are: transformer.wte.weight, transformer.h.0.ln_1.weight, "
      "transformer.h.0.ln_1.bias and 2 more");
  EXPECT_EQ(
      ErrorOf({{.match = "?.ln_1.*"}}),
      "optimizer.groups[0].match: found '?.ln_1.*', which matches none of the 5 parameters; near "
      "it: "
      "transformer.h.0.ln_1.weight, transformer.h.0.ln_1.bias, transformer.h.1.ln_1.weight; the "
      "parameters are: transformer.wte.weight, transformer.h.0.ln_1.weight, "
      "transformer.h.0.ln_1.bias and 2 more");
}

}  // namespace
}  // namespace muster::optim
