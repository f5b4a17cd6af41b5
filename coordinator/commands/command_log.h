// The numbered command log of one job. Commands are durable and delivered in order. Each is
// acknowledged with the step at which it took effect, and ends with an outcome. Clients see a
// command as an operation. A repeated report is recognised by its number. Pure.
// docs/concepts/commands.md describes the protocol.
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

// How a command ended.
struct Outcome {
  absl::Time time = absl::InfinitePast();
  absl::StatusCode code = absl::StatusCode::kOk;
  // Of an error: for programs, and for people.
  std::string reason;
  std::string message;
  // v1::OperationResult, serialized; the cores never look inside.
  std::string result;

  bool operator==(const Outcome&) const = default;
};

struct Command {
  // From 1, without gaps.
  uint64_t number = 0;
  // Stored by its number.
  v1::Operation::Kind kind = v1::Operation::STOP;
  // v1::Command, serialized; the cores never look inside.
  std::string contents;
  // The command waits until this many optimizer steps are done.
  std::optional<uint64_t> at_step;
  // The number of another command; 0: none. Of a CANCEL: the command to cancel. Of a PAUSE that
  // took effect: the resume that ended it. Of a command that Replace() names: the resume that
  // replaced it.
  uint64_t target = 0;
  // Who asked, as the client says.
  std::string requested_by;
  // Who asked, as the connection proved it; empty: Muster itself.
  std::string requester;
  absl::Time create_time = absl::InfinitePast();
  // Optimizer steps done when it took effect; absent until a worker reports it.
  std::optional<uint64_t> applied_step;
  std::optional<Outcome> outcome;

  bool operator==(const Command&) const = default;
};

// What a worker should do with a command.
struct Delivery {
  enum class When {
    // Carry it out as soon as it is due.
    kWhenDue,
    // Carry it out again after command.applied_step steps, as an earlier generation did, and before
    // any later change.
    kReplay,
    // Nothing: it failed, was cancelled or replaced, or is done and did not change the job's state.
    kNever,
  };
  Command command;
  When when = When::kWhenDue;
  // The step for which it waits; absent: none. That of a command which took effect before is the
  // step at which it did.
  std::optional<uint64_t> at_step = std::nullopt;
};

class CommandLog {
 public:
  CommandLog() = default;
  // From the store, in order of their numbers.
  explicit CommandLog(std::vector<Command> commands);

  // Assigns the command's number and returns it.
  uint64_t Append(Command command);

  // The commands that a worker must still receive which holds all commands up to `newest`. The
  // worker may start from an earlier step than that at which a command took effect. So a command
  // that changed its state is sent as a replay (the worker skips what its checkpoint has), and one
  // that is not finished as begun; finished others are over. A paused job halts again at once.
  std::vector<Delivery> After(uint64_t newest) const;
  // The same for one command, which must be known.
  Delivery DeliveryOf(uint64_t number) const;

  // Both return false if the number is not known, or if this was reported before (the first report
  // counts). There is one exception: a command that ended with JOB_ENDED, but that a checkpoint has
  // taken in, was carried out before its job ended, without a report. Applied() makes it done.
  bool Applied(uint64_t number, uint64_t step);
  bool Finished(uint64_t number, Outcome outcome);
  // A worker continues after `step` steps from a checkpoint that has taken in commands up to
  // `number`. Those of them that change settings and had taken effect by then are done, even if
  // rank 0 was lost after the report that they took effect and before the one of their end.
  void FinishTaken(uint64_t number, uint64_t step, absl::Time now);
  // The command `by` decides anew what commands of this kind have decided (ChangesState): no
  // process carries them out again.
  void Replace(v1::Operation::Kind kind, uint64_t by);
  // The job has ended, and so all its open commands end. `how`: the job's state. `stopped`: it
  // ended because a stop command asked for it. True if there were open commands.
  bool EndAll(const std::string& how, bool stopped, absl::Time now);

  // A worker continues from a checkpoint that has taken in commands up to `number`. If the database
  // was restored, its log has lost some of them: those above `known`, the newest command that any
  // earlier process of the job can have held. Commands that were given since then under such
  // numbers get a number above all of them, and the lost commands end. Returns pairs of old and new
  // numbers.
  std::vector<std::pair<uint64_t, uint64_t>> RenumberAbove(uint64_t number, uint64_t known,
                                                           absl::Time now);

  // True while a cancel of this command has not taken effect yet.
  bool IsBeingCancelled(uint64_t number) const { return being_cancelled_.contains(number); }

  // Null if there is none.
  const Command* Find(uint64_t number) const;
  const std::vector<Command>& commands() const { return commands_; }
  // The number of the newest command; 0: there is none.
  uint64_t newest() const { return commands_.size(); }
  // The oldest protocol of workers that know every command which a new process of the job carries
  // out; 0: all that are served.
  uint32_t SinceProtocol() const;
  // Of all commands: what a new process of the job must receive.
  size_t contents_bytes() const { return contents_bytes_; }
  // Those without an outcome.
  const std::set<uint64_t>& open() const { return open_; }
  // The numbers of the commands that were added or changed since the last call (at first: since
  // they were loaded from the store).
  std::set<uint64_t> TakeChanged() { return std::exchange(changed_, {}); }
  // True if the job is paused, or will be once all commands that wait for no step have taken
  // effect.
  bool WillBePaused() const;

 private:
  Delivery::When WhenOf(const Command& command) const;
  std::optional<uint64_t> StepOf(const Command& command, Delivery::When when) const;
  // The command, marked as changed.
  Command& Change(uint64_t number);
  // Updates the sets below for this command.
  void Sort(const Command& command);

  std::vector<Command> commands_;
  size_t contents_bytes_ = 0;
  // Sets that answer questions about the whole log. They are kept up to date so that a command does
  // not become slower as the log grows.
  std::set<uint64_t> open_;
  std::set<uint64_t> pauses_in_force_;
  // Pauses and resumes that have not taken effect and wait for no step.
  std::set<uint64_t> turns_to_come_;
  // The targets of open cancels.
  std::multiset<uint64_t> being_cancelled_;
  std::set<uint64_t> changed_;
};

}  // namespace muster::commands

#endif  // MUSTER_COORDINATOR_COMMANDS_COMMAND_LOG_H_
