// The numbered command log of one job. Commands are durable and delivered in order. A worker
// acknowledges each command with the step at which it took effect. Each command ends with an
// outcome. Clients see a command as an operation. A repeated report is recognised by the command's
// number. Pure. docs/concepts/commands.md describes the protocol.
#ifndef MUSTER_COORDINATOR_COMMANDS_COMMAND_LOG_H_
#define MUSTER_COORDINATOR_COMMANDS_COMMAND_LOG_H_

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/commands/command_rule.h"
#include "proto/muster/v1/operation.pb.h"

namespace muster::commands {

// The end of a command.
struct Outcome {
  absl::Time time = absl::InfinitePast();
  absl::StatusCode code = absl::StatusCode::kOk;
  // The error's code for programs, and its text for people.
  std::string reason;
  std::string message;
  // v1::OperationResult, serialized. The log does not parse it.
  std::string result;

  bool operator==(const Outcome&) const = default;
};

struct Command {
  // The command's number. Numbers start from 1, without gaps.
  uint64_t number = 0;
  // The kind, which is stored as its enum number.
  v1::Operation::Kind kind = v1::Operation::STOP;
  // v1::Command, serialized. The log does not parse it.
  std::string contents;
  // The number of optimizer steps that must be done before the command takes effect.
  std::optional<uint64_t> at_step;
  // The number of another command; 0 if there is none. Its meaning depends on the command:
  // - a CANCEL: the command to cancel.
  // - a PAUSE that took effect: the resume that ended the pause.
  // - a command that Replace() names: the command that replaced it.
  uint64_t target = 0;
  // The requester's name, as the client says.
  std::string requested_by;
  // The requester, as the connection proved it; empty for Muster itself.
  std::string requester;
  absl::Time create_time = absl::InfinitePast();
  // The optimizer steps done when the command took effect; absent until a worker reports them.
  std::optional<uint64_t> applied_step;
  std::optional<Outcome> outcome;

  bool operator==(const Command&) const = default;
};

// A command for a worker, and when the worker carries it out.
struct Delivery {
  enum class When {
    // Carry out the command when it is due.
    kWhenDue,
    // Carry out the command again after command.applied_step steps, as an earlier generation did,
    // and before any later change.
    kReplay,
    // Never carry out the command: it failed, was cancelled or replaced, or is done without a
    // change of the job's state. A pause in force is no such command.
    kNever,
  };
  Command command;
  When when = When::kWhenDue;
  // The step for which the command waits; absent if it waits for none. CommandLog::After describes
  // the step of a command that took effect before.
  std::optional<uint64_t> at_step = std::nullopt;
};

class CommandLog {
 public:
  CommandLog() = default;
  // Takes the commands from the store, in order of their numbers.
  explicit CommandLog(std::vector<Command> commands);

  // Assigns the command's number and returns it.
  uint64_t Append(Command command);

  // Returns the commands above `newest`, for a worker that has all commands up to `newest`. The
  // worker may start from an earlier step than the step at which such a command took effect. So:
  // - kReplay: a command that changed the training state, unless it failed or was replaced. The
  //   worker skips the command if its checkpoint has the effect.
  // - kWhenDue: a command without effect and outcome so far, and any other command that took effect
  //   but has no outcome. Also a pause in force, so that the processes of a paused job halt again
  //   at once.
  // - kNever: every other command.
  // Delivery::at_step of a command that took effect is the step of its effect if the command is
  // replayed, writes a file or has the nature CHANGES_NOTHING. Otherwise, and for kNever, the step
  // is absent. v1::Command.begun tells the worker that a command took effect before.
  std::vector<Delivery> After(uint64_t newest) const;
  // Returns the delivery of one command, which must be known.
  Delivery DeliveryOf(uint64_t number) const;

  // Record a report. They return false if the number is not known, or if the same was reported
  // before (the first report counts). One exception: a checkpoint may contain the effect of a
  // command that ended with JOB_ENDED. The command was then carried out before the job ended,
  // without a report. Applied() sets it to done.
  bool Applied(uint64_t number, uint64_t step);
  bool Finished(uint64_t number, Outcome outcome);
  // Records that a worker continues after `step` steps from a checkpoint with the effects of
  // commands up to `number`. Commands up to `number` that change settings and took effect by `step`
  // are done. Rank 0 may have been lost between the reports that they took effect and that they
  // ended.
  void FinishTaken(uint64_t number, uint64_t step, absl::Time now);
  // Marks commands of this kind as replaced by the command `by`, which decides the same setting
  // again (ChangesState). No process carries them out again.
  void Replace(v1::Operation::Kind kind, uint64_t by);
  // Ends all open commands because the job has ended. `how`: the job's state. `stopped`: whether a
  // stop command ended the job. True if there were open commands.
  bool EndAll(const std::string& how, bool stopped, absl::Time now);

  // Records that a worker continues from a checkpoint with the effects of commands up to `number`.
  // `known`: the newest command of this log that earlier processes of the job can have received.
  // If `number` is greater, the database was restored from a backup without some of these commands.
  // Open commands that are newer than the backup then get numbers above those that workers already
  // know. The lost commands are added with the outcome OPERATION_LOST. Returns pairs of old and new
  // numbers.
  std::vector<std::pair<uint64_t, uint64_t>> RenumberAbove(uint64_t number, uint64_t known,
                                                           absl::Time now);

  // True while a cancel of this command has not taken effect yet.
  bool IsBeingCancelled(uint64_t number) const { return being_cancelled_.contains(number); }

  // Null if the number is not known.
  const Command* Find(uint64_t number) const;
  const std::vector<Command>& commands() const { return commands_; }
  // The number of the newest command; 0 if there is none.
  uint64_t newest() const { return commands_.size(); }
  // The oldest worker protocol that knows every command which a new process of the job carries out;
  // 0 if all served protocols do.
  uint32_t SinceProtocol() const;
  // The bytes of all commands, which a new process of the job must receive.
  size_t contents_bytes() const { return contents_bytes_; }
  // The commands without an outcome.
  const std::set<uint64_t>& open() const { return open_; }
  // Returns the numbers of the commands that were added or changed since the last call. The first
  // call covers the time since the log was loaded from the store.
  std::set<uint64_t> TakeChanged() { return std::exchange(changed_, {}); }
  // True if the job is paused, or will be when all commands that wait for no step have taken
  // effect.
  bool WillBePaused() const;

 private:
  Delivery::When WhenOf(const Command& command) const;
  std::optional<uint64_t> StepOf(const Command& command, Delivery::When when) const;
  // Returns the command, and marks it as changed.
  Command& Change(uint64_t number);
  // Updates the sets below for this command.
  void UpdateSets(const Command& command);

  std::vector<Command> commands_;
  size_t contents_bytes_ = 0;
  // Sets that answer questions about the whole log. They keep each call fast when the log grows.
  std::set<uint64_t> open_;
  std::set<uint64_t> pauses_in_force_;
  // Pauses and resumes that wait for no step and have not taken effect.
  std::set<uint64_t> turns_to_come_;
  // The targets of open cancels.
  std::multiset<uint64_t> being_cancelled_;
  std::set<uint64_t> changed_;
};

}  // namespace muster::commands

#endif  // MUSTER_COORDINATOR_COMMANDS_COMMAND_LOG_H_
