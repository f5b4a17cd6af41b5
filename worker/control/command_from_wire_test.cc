#include "worker/control/command_from_wire.h"

#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <variant>
#include <vector>

#include "common/safetensors/safetensors.h"

namespace muster::control {
namespace {

train::Command Read(const std::string& text) {
  v1::Command command;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &command)) << text;
  return CommandFromWire(command);
}

TEST(CommandFromWire, SaysWhenAndInWhichGenerationItTakesEffect) {
  const train::Command plain = Read("number: 7 stop {}");
  EXPECT_EQ(plain.number, 7);
  EXPECT_FALSE(plain.at_step.has_value());
  EXPECT_FALSE(plain.replay);
  EXPECT_FALSE(plain.begun);
  EXPECT_EQ(Read("at_step: 0 stop {}").at_step, 0) << "before the first step";
  EXPECT_EQ(Read("at_step: 12 stop {}").at_step, 12);
  EXPECT_TRUE(Read("replay: true pause {}").replay);
  EXPECT_TRUE(Read("begun: true pause {}").begun);
}

TEST(CommandFromWire, EachKindIsOneOfItsOwn) {
  std::set<size_t> kinds;
  const auto* oneof = v1::Command::descriptor()->FindOneofByName("kind");
  for (int i = 0; i < oneof->field_count(); ++i) {
    if (oneof->field(i)->name() == "none" || oneof->field(i)->name() == "skip_data") continue;
    const std::string name(oneof->field(i)->name());
    const train::Command command = Read(name + " {}");
    EXPECT_FALSE(std::holds_alternative<train::NoCommand>(command.what)) << name;
    EXPECT_TRUE(kinds.insert(command.what.index()).second) << name;
  }
  EXPECT_EQ(kinds.size(), std::variant_size_v<decltype(train::Command::what)> - 1);
}

TEST(CommandFromWire, KeepsWhatACommandCarries) {
  const auto rate = Read("set_learning_rate { learning_rate: 0.25 }");
  EXPECT_EQ(std::get<train::SetLearningRateCommand>(rate.what).rate, 0.25);
  const auto cancel = Read("cancel { target: 3 }");
  EXPECT_EQ(std::get<train::CancelCommand>(cancel.what).target, 3);
  const auto rules = std::get<train::SetTrainabilityCommand>(
      Read("set_trainability { dry_run: true rules { freeze: 'a.*' } rules { unfreeze: 'a.b' } }")
          .what);
  EXPECT_TRUE(rules.dry_run);
  ASSERT_EQ(rules.rules.size(), 2u);
  EXPECT_TRUE(rules.rules[0].freeze);
  EXPECT_EQ(rules.rules[0].pattern, "a.*");
  EXPECT_FALSE(rules.rules[1].freeze);
  EXPECT_EQ(rules.rules[1].pattern, "a.b");
}

TEST(CommandFromWire, KeepsWhatAFolderIsLike) {
  const auto folder = std::get<train::ConsolidateCommand>(
      Read("consolidate { folder { path: '/m' dtype: BFLOAT16 max_shard_bytes: 9 overwrite: true "
           "hold: true } }")
          .what);
  EXPECT_EQ(folder.path, "/m");
  EXPECT_EQ(folder.dtype, safetensors::DType::kBF16);
  EXPECT_EQ(folder.max_shard_bytes, 9);
  EXPECT_TRUE(folder.overwrite);
  EXPECT_TRUE(folder.hold);
  EXPECT_EQ(std::get<train::ConsolidateCommand>(Read("consolidate {}").what).dtype,
            safetensors::DType::kF32);
}

TEST(CommandFromWire, KeepsWhatIsEvaluatedAndWhatIsContinued) {
  EXPECT_EQ(std::get<train::RunStageCommand>(Read("run_stage { stage: 'test' }").what).stage,
            train::kTestStage);
  const auto drawn = std::get<train::SampleCommand>(
      Read("sample { tokens: [7, 8] max_tokens: 3 temperature: 0.5 top_k: 4 "
           "seed: 18446744073709551615 }")
          .what);
  EXPECT_EQ(drawn.prompt, (std::vector<int64_t>{7, 8}));
  EXPECT_EQ(drawn.max_tokens, 3);
  EXPECT_EQ(drawn.temperature, 0.5);
  EXPECT_EQ(drawn.top_k, 4);
  EXPECT_EQ(drawn.seed, 18446744073709551615u);
  const auto greedy = std::get<train::SampleCommand>(Read("sample { tokens: 7 }").what);
  EXPECT_FALSE(greedy.temperature.has_value());
  EXPECT_FALSE(greedy.top_k.has_value());
}

TEST(CommandFromWire, AFileForAClientLiesInTheAgentsFolderWhateverPathIsGiven) {
  v1::Command wire;
  wire.set_number(7);
  wire.mutable_gather_optimizer_state()->mutable_file()->set_download(true);
  wire.mutable_gather_optimizer_state()->mutable_file()->set_path("/etc/passwd");
  const auto gather = std::get<train::GatherOptimizerStateCommand>(
      CommandFromWire(wire, {.folder = "/agent/downloads", .job_id = "job"}).what);
  EXPECT_EQ(gather.path, "/agent/downloads/job-7");
  EXPECT_TRUE(gather.overwrite);
  EXPECT_TRUE(gather.for_client);
  EXPECT_EQ(std::get<train::GatherOptimizerStateCommand>(CommandFromWire(wire).what).path, "")
      << "there is no folder";
}

// A cancelled command, and a kind that only a newer coordinator knows.
TEST(CommandFromWire, CancelledAndUnknownCommandsAreNone) {
  EXPECT_TRUE(std::holds_alternative<train::NoCommand>(Read("number: 1 none {}").what));
  EXPECT_TRUE(std::holds_alternative<train::NoCommand>(Read("number: 1").what));
}

}  // namespace
}  // namespace muster::control
