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

std::string ErrorOf(const std::vector<ParameterGroup>& groups) {
  const auto settings = SettingsFor(Names(), groups);
  EXPECT_EQ(settings.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(settings.status().message());
}

TEST(SettingsFor, WithoutGroupsIsTheOptimizersOwn) {
  const auto settings = SettingsFor(Names(), {});
  ASSERT_TRUE(settings.ok());
  ASSERT_EQ(settings->size(), 5);
  for (const GroupSettings& one : *settings) {
    EXPECT_FALSE(one.weight_decay.has_value());
    EXPECT_EQ(one.lr_scale, 1.0);
  }
}

TEST(SettingsFor, ASettingIsThatOfTheLastGroupWhichMatchesAndSetsIt) {
  const auto settings = SettingsFor(Names(), {{.match = "*", .weight_decay = 0.5, .lr_scale = 0.25},
                                              {.match = "*bias", .weight_decay = 0.0},
                                              {.match = "transformer.h.*", .lr_scale = 2.0}});
  ASSERT_TRUE(settings.ok()) << settings.status();
  const double decays[] = {0.5, 0.5, 0.0, 0.5, 0.0};
  const double scales[] = {0.25, 2, 2, 2, 0.25};
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ((*settings)[i].weight_decay, decays[i]) << Names()[i];
    EXPECT_EQ((*settings)[i].lr_scale, scales[i]) << Names()[i];
  }
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
