#include "common/commands/command_rule.h"

#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "common/version/protocol.h"

namespace muster::commands {
namespace {

using Rule = v1::CommandRule;
using Kind = v1::Operation::Kind;
using ::testing::ElementsAreArray;
using ::testing::IsEmpty;

struct Row {
  Kind kind;
  std::string name;
  std::string muster;
  Rule::Nature nature;
  std::vector<int> needs = {};
  Rule::Writes writes = Rule::NOTHING;
  Rule::Cancellable cancellable = Rule::UNTIL_IT_TAKES_EFFECT;
  uint32_t since_protocol = 0;
};

// The rules that both processes follow. A changed row changes the commands that running jobs repeat
// after a rollback.
std::vector<Row> Rows() {
  using Operation = v1::Operation;
  return {
      {Operation::STOP, "stop", "stop", Rule::DONE_ONCE},
      {Operation::SET_TRAINABILITY,
       "set_trainability",
       "freeze",
       Rule::CHANGES_STATE,
       {Rule::OPTIMIZER}},
      {Operation::REFRESH, "refresh", "refresh", Rule::CHANGES_STATE, {Rule::OPTIMIZER}},
      {Operation::SAVE_CHECKPOINT,
       "save_checkpoint",
       "checkpoint",
       Rule::DONE_ONCE,
       {Rule::CHECKPOINTS, Rule::TRAINING},
       Rule::CHECKPOINT},
      {Operation::SET_LEARNING_RATE,
       "set_learning_rate",
       "set-lr",
       Rule::CHANGES_STATE,
       {Rule::OPTIMIZER}},
      {Operation::PAUSE, "pause", "pause", Rule::DONE_ONCE},
      {Operation::RESUME, "resume", "resume", Rule::DONE_ONCE},
      {Operation::CANCEL, "cancel", "operation", Rule::ANSWERS, {}, Rule::NOTHING, Rule::NEVER},
      {Operation::PLAN_TRAINABILITY,
       "plan_trainability",
       "freeze",
       Rule::ANSWERS,
       {Rule::OPTIMIZER}},
      {Operation::GATHER_OPTIMIZER_STATE,
       "gather_optimizer_state",
       "gather-optimizer-state",
       Rule::DONE_ONCE,
       {Rule::OPTIMIZER},
       Rule::FOR_OTHERS,
       Rule::UNTIL_IT_IS_DONE},
      {Operation::CONSOLIDATE,
       "consolidate",
       "consolidate",
       Rule::DONE_ONCE,
       {Rule::TRAINING},
       Rule::FOR_OTHERS,
       Rule::UNTIL_IT_IS_DONE},
      {Operation::SKIP_DATA,
       "skip_data",
       "skip-data",
       Rule::CHANGES_STATE,
       {Rule::OPTIMIZER},
       Rule::NOTHING,
       Rule::UNTIL_IT_TAKES_EFFECT,
       8},
      {Operation::PLAN_SKIP_DATA,
       "plan_skip_data",
       "skip-data",
       Rule::ANSWERS,
       {Rule::OPTIMIZER},
       Rule::NOTHING,
       Rule::UNTIL_IT_TAKES_EFFECT,
       8},
      {Operation::RUN_STAGE,
       "run_stage",
       "stage",
       Rule::CHANGES_NOTHING,
       {},
       Rule::NOTHING,
       Rule::UNTIL_IT_IS_DONE},
      {Operation::SAMPLE,
       "sample",
       "sample",
       Rule::CHANGES_NOTHING,
       {Rule::TOKENS},
       Rule::NOTHING,
       Rule::UNTIL_IT_IS_DONE},
  };
}

TEST(RuleOf, SaysWhatHoldsForEachCommand) {
  std::set<Kind> seen = {v1::Operation::KIND_UNSPECIFIED};
  for (const Row& row : Rows()) {
    SCOPED_TRACE(row.name);
    const Rule& rule = RuleOf(row.kind);
    EXPECT_EQ(rule.kind(), row.kind);
    EXPECT_EQ(Name(row.kind), row.name);
    EXPECT_EQ(rule.name(), row.muster);
    EXPECT_EQ(rule.nature(), row.nature);
    EXPECT_THAT(rule.needs(), ElementsAreArray(row.needs));
    EXPECT_EQ(rule.writes(), row.writes);
    EXPECT_EQ(rule.cancellable(), row.cancellable);
    EXPECT_EQ(rule.since_protocol(), row.since_protocol);
    EXPECT_TRUE(seen.insert(row.kind).second);
  }
  for (int kind = v1::Operation::Kind_MIN; kind <= v1::Operation::Kind_MAX; ++kind) {
    EXPECT_EQ(seen.contains(static_cast<Kind>(kind)), v1::Operation::Kind_IsValid(kind)) << kind;
  }
}

TEST(RuleOf, EveryMessageOfACommandHasARuleOfItsOwn) {
  const auto* commands = v1::Command::descriptor()->FindOneofByName("kind");
  std::set<Kind> kinds;
  for (int i = 0; i < commands->field_count(); ++i) {
    const auto* message = commands->field(i)->message_type();
    SCOPED_TRACE(message->name());
    const Rule& rule = message->options().GetExtension(v1::command);
    EXPECT_TRUE(kinds.insert(rule.kind()).second);
    const bool is_none = message == v1::NoCommand::descriptor();
    EXPECT_EQ(rule.kind() == v1::Operation::KIND_UNSPECIFIED, is_none);
    EXPECT_EQ(rule.nature() == Rule::NATURE_UNSPECIFIED, is_none);
    EXPECT_EQ(rule.name().empty(), is_none);
    EXPECT_LE(rule.since_protocol(), kWorkerProtocol);
    EXPECT_EQ(rule.dry_run() != v1::Operation::KIND_UNSPECIFIED,
              message->FindFieldByName("dry_run") != nullptr);
    const bool can_be_done_again =
        rule.writes() == Rule::FOR_OTHERS || rule.nature() == Rule::CHANGES_NOTHING;
    EXPECT_EQ(rule.cancellable() == Rule::UNTIL_IT_IS_DONE, can_be_done_again);
    EXPECT_TRUE(rule.writes() == Rule::NOTHING || rule.nature() == Rule::DONE_ONCE);
  }
}

TEST(RuleOf, AKindOfANewerProgramHasAnEmptyRule) {
  const auto newer = static_cast<Kind>(1000);
  EXPECT_EQ(RuleOf(newer).nature(), Rule::NATURE_UNSPECIFIED);
  EXPECT_THAT(RuleOf(newer).needs(), IsEmpty());
  EXPECT_EQ(Name(newer), "unknown");
  EXPECT_EQ(RuleOf(v1::Operation::KIND_UNSPECIFIED).nature(), Rule::NATURE_UNSPECIFIED);
  EXPECT_EQ(Name(v1::Operation::KIND_UNSPECIFIED), "lost");
}

TEST(KindOf, IsThatOfTheMessage) {
  v1::Command command;
  EXPECT_EQ(KindOf(command), v1::Operation::KIND_UNSPECIFIED);
  EXPECT_EQ(FieldName(command), "");
  command.mutable_none();
  EXPECT_EQ(KindOf(command), v1::Operation::KIND_UNSPECIFIED);
  command.mutable_set_learning_rate();
  EXPECT_EQ(KindOf(command), v1::Operation::SET_LEARNING_RATE);
  EXPECT_EQ(FieldName(command), "set_learning_rate");
  command.mutable_set_trainability();
  EXPECT_EQ(KindOf(command), v1::Operation::SET_TRAINABILITY);
  EXPECT_EQ(RuleOf(command).nature(), Rule::CHANGES_STATE);
  command.mutable_set_trainability()->set_dry_run(true);
  EXPECT_EQ(KindOf(command), v1::Operation::PLAN_TRAINABILITY);
  EXPECT_EQ(RuleOf(command).nature(), Rule::ANSWERS);
  EXPECT_EQ(FieldName(command), "set_trainability");
}

}  // namespace
}  // namespace muster::commands
