// The numbered command log of one job: durable, delivered in order, each command acknowledged with
// the step at which it took effect, and ended with an outcome. To a client a command is an
// operation. A repeat is recognised by its number. Pure. docs/commands.md describes the protocol.
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

namespace muster::commands {

// Values are those of v1::Operation::Kind and are stored: never renumbered.
enum class Kind {
  // Its record is lost: a database was restored that did not have it.
  kLost = 0,
  kStop = 1,
  kSetTrainability = 2,
  kRefresh = 3,
  kSaveCheckpoint = 4,
  kSetLearningRate = 5,
  kPause = 6,
  kResume = 7,
  kCancel = 8,
  kPlanTrainability = 9,
};
// "save_checkpoint".
const char* Name(Kind kind);
// What it changes stays in force, and is part of every checkpoint that is written after it.
// Commands of the other kinds are carried out anew by the processes that go on from a checkpoint.
bool ChangesState(Kind kind);

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
  Kind kind = Kind::kStop;
  // v1::Command, serialized; the cores never look inside.
  std::string contents;
  // Not before so many optimizer steps are done.
  std::optional<uint64_t> at_step;
  // Of kCancel: the number of the command that is taken back. Of kPause that took effect: of the
  // resume that ended it; 0: it is in force.
  uint64_t target = 0;
  std::string requested_by;
  absl::Time create_time = absl::InfinitePast();
  // Optimizer steps done when it took effect; absent until a worker says so.
  std::optional<uint64_t> applied_step;
  std::optional<Outcome> outcome;

  bool operator==(const Command&) const = default;
};

// What a worker is to do with a command.
struct Delivery {
  enum class When {
    // As soon as it may.
    kAnew,
    // Again after command.applied_step steps, where an earlier generation did it, and no later
    // change before it.
    kReplay,
    // Nothing: it is done, or was taken back.
    kNever,
  };
  Command command;
  When when = When::kAnew;
};

class CommandLog {
 public:
  CommandLog() = default;
  // From the store, in order of their numbers.
  explicit CommandLog(std::vector<Command> commands);

  // Gives it its number.
  uint64_t Append(Command command);

  // What a worker that holds all up to `newest` has yet to get. Of what took effect before: what
  // changed the job's state is done again at its step, because the worker may start from an older
  // one; what is done once is not; a job that was halted halts again.
  std::vector<Delivery> After(uint64_t newest) const;

  // Each is false when the number is not known, or when it was told before (the first report
  // stands). One exception: a command that ended with JOB_ENDED and that a checkpoint has was
  // carried out before its job ended, although nobody had heard of it. Applied() makes it done.
  bool Applied(uint64_t number, uint64_t step);
  bool Finished(uint64_t number, Outcome outcome);
  // A worker goes on after `step` steps from a checkpoint that has taken in commands up to
  // `number`. Those of them that change state and had taken effect by then are done, also where no
  // report said so because rank 0 was lost before it could.
  void FinishTaken(uint64_t number, uint64_t step, absl::Time now);
  // The job has ended: so has every command of it. `how`: the job's state; stopped: as a command
  // asked. True when there were any.
  bool EndAll(const std::string& how, bool stopped, absl::Time now);

  // A worker goes on from a checkpoint that has taken in commands up to `number`. Where the log is
  // that of a restored database, it has lost some of them: those above `known`, the newest one that
  // any earlier process of the job can have held. What was given since under their numbers goes on
  // under a number above all of them, and the lost ones are ended. The result: old and new numbers.
  std::vector<std::pair<uint64_t, uint64_t>> GoOnAbove(uint64_t number, uint64_t known,
                                                       absl::Time now);

  // A cancel of it has not taken effect yet.
  bool IsBeingCancelled(uint64_t number) const { return being_cancelled_.contains(number); }

  // Null when there is none.
  const Command* Find(uint64_t number) const;
  const std::vector<Command>& commands() const { return commands_; }
  // Of the newest one; 0: there is none.
  uint64_t newest() const { return commands_.size(); }
  // Those without an outcome.
  const std::set<uint64_t>& open() const { return open_; }
  // The numbers of those that were added or changed since the last call, or since they came from
  // the store.
  std::set<uint64_t> TakeChanged() { return std::exchange(changed_, {}); }
  // The job is halted, or will be once what waits for no step has taken effect.
  bool WillBePaused() const;

 private:
  Delivery::When WhenOf(const Command& command) const;
  // To be changed.
  Command& Change(uint64_t number);
  // Puts it into the sets below, or takes it out.
  void Sort(const Command& command);

  std::vector<Command> commands_;
  // What is asked of the whole log, kept up to date: a log of many commands must not make the next
  // one slower.
  std::set<uint64_t> open_;
  std::set<uint64_t> pauses_in_force_;
  // Pauses and resumes that have not taken effect and wait for no step.
  std::set<uint64_t> turns_to_come_;
  // Of open cancels, by their targets.
  std::multiset<uint64_t> being_cancelled_;
  std::set<uint64_t> changed_;
};

}  // namespace muster::commands

#endif  // MUSTER_COORDINATOR_COMMANDS_COMMAND_LOG_H_
