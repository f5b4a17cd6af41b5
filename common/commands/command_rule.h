// The rule of a command to a running job, from the option of the command's message
// (proto/muster/v1/command_rule.proto). musterd and the workers read the same option. A difference
// between them would corrupt the commands that a job repeats after a rollback.
#ifndef MUSTER_COMMON_COMMANDS_COMMAND_RULE_H_
#define MUSTER_COMMON_COMMANDS_COMMAND_RULE_H_

#include <string>

#include "proto/muster/v1/command_rule.pb.h"
#include "proto/muster/v1/operation.pb.h"
#include "proto/muster/v1/worker_service.pb.h"

namespace muster::commands {

// The kind of operation as which the command is stored and shown. KIND_UNSPECIFIED: there is
// nothing to do, or the command is of a newer program.
v1::Operation::Kind KindOf(const v1::Command& command);

// Returns whether there is nothing to do: the command is done, was cancelled, or is of a newer
// program.
inline bool IsOver(const v1::Command& command) {
  return command.kind_case() == v1::Command::kNone ||
         command.kind_case() == v1::Command::KIND_NOT_SET;
}

// The rule of a kind. KIND_UNSPECIFIED, and a kind of a newer program, have an empty rule.
const v1::CommandRule& RuleOf(v1::Operation::Kind kind);
inline const v1::CommandRule& RuleOf(const v1::Command& command) { return RuleOf(KindOf(command)); }

// "save_checkpoint"; "lost" for a command whose record is lost.
std::string Name(v1::Operation::Kind kind);

// The name of the field of v1::Command that is set: "set_trainability"; empty if none is.
std::string FieldName(const v1::Command& command);

// Returns whether the command takes effect at a step, and is done when a file has been written
// afterwards.
inline bool WritesAFile(v1::Operation::Kind kind) {
  return RuleOf(kind).writes() != v1::CommandRule::NOTHING;
}
// Returns whether the command writes a file for others and not for the job itself.
inline bool WritesForOthers(v1::Operation::Kind kind) {
  return RuleOf(kind).writes() == v1::CommandRule::FOR_OTHERS;
}
// The nature of a command; CommandRule.Nature describes these three.
inline bool ChangesState(v1::Operation::Kind kind) {
  return RuleOf(kind).nature() == v1::CommandRule::CHANGES_STATE;
}
inline bool ChangesNothing(v1::Operation::Kind kind) {
  return RuleOf(kind).nature() == v1::CommandRule::CHANGES_NOTHING;
}
inline bool IsDoneOnce(v1::Operation::Kind kind) {
  return RuleOf(kind).nature() == v1::CommandRule::DONE_ONCE || ChangesNothing(kind);
}

}  // namespace muster::commands

#endif  // MUSTER_COMMON_COMMANDS_COMMAND_RULE_H_
