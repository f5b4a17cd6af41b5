// The times at which the commands of the job's log take effect. Every rank has a schedule. All
// schedules take in the same commands at the same step boundaries, up to the number in the roll
// call's plan. So all ranks decide the same. Pure. docs/concepts/commands.md describes the
// protocol.
//
// A schedule takes in a command at the first boundary at which every rank holds the command. The
// command takes effect at this boundary or at its at_step. A change of an earlier generation takes
// effect again at the same step; later changes take effect after it.
#ifndef MUSTER_WORKER_TRAIN_SCHEDULE_COMMAND_SCHEDULE_H_
#define MUSTER_WORKER_TRAIN_SCHEDULE_COMMAND_SCHEDULE_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "worker/train/reports/coordinator_interface.h"

namespace muster::train {

// Returns the path that the command writes for a client; null if the command writes no such path.
const std::string* PathFor(const Command& command);

class CommandSchedule {
 public:
  // The schedule's part of a checkpoint; empty for a new job.
  struct Position {
    // The newest command taken in.
    int64_t taken = 0;
    // The commands up to `taken` that have not taken effect, by increasing number.
    std::vector<int64_t> waiting;
    friend bool operator==(const Position&, const Position&) = default;
  };
  using Get = std::function<Command(int64_t number)>;

  CommandSchedule() = default;
  // Continues from a checkpoint. The schedule takes in again, of the commands up to `taken`:
  // - the commands that wait;
  // - the commands that must be carried out although the checkpoint includes them: a pause in
  //   force, or a checkpoint that was not finished.
  explicit CommandSchedule(const Position& restored) : restored_(restored) {}

  // A command that takes effect now.
  struct Due {
    Command command;
    // For a cancel command. True: the target was waiting and is cancelled. False: there was nothing
    // to cancel.
    bool cancels = false;
  };
  // Takes in the commands up to `newest` at the boundary after `step` steps. Every rank holds these
  // commands. `newest` never decreases.
  void TakeIn(int64_t newest, int64_t step, const Get& get);
  // Returns the next command that takes effect at this boundary. Cancels come first; other commands
  // come by step and then by number. The returned command counts as done. A checkpoint that is
  // written before the next call stores the remaining commands as waiting.
  //
  // A pause is held back while a command that an earlier generation began waits for its step:
  // otherwise a paused job would never reach this step. A resume that is due ends the holding back;
  // so the pause takes effect before the resume.
  std::optional<Due> Next(int64_t step);

  // Returns the schedule's part of a checkpoint.
  Position position() const;

 private:
  struct Waiting {
    int64_t due = 0;
    Command command;
  };

  void TakeIn(const Command& command, int64_t step);
  // True while pauses are held back (Next).
  bool HoldsBackPauses(int64_t step) const;

  Position restored_;
  int64_t taken_ = 0;  // the newest command that this session has taken in
  int64_t floor_ = 0;  // the last step at which a command of an earlier generation is repeated
  std::vector<Waiting> waiting_;  // by increasing number
  std::deque<Due> cancels_;       // taken in, but not yet returned by Next
};

// The end of a command that a session reports again. A session that starts from a checkpoint
// reports again the ends of the commands that the checkpoint includes. The generation that carried
// out a command may have ended before the coordinator received its report.
struct Unreported {
  enum class What {
    // The command took effect and is finished.
    kFinished,
    // The command was cancelled before it took effect.
    kCancelled,
    // The command took effect. The coordinator already knows an end of the command, which may be
    // wrong: perhaps the coordinator ended the command with the job before this checkpoint was
    // found.
    kApplied,
  };
  int64_t number = 0;
  What what = What::kFinished;
  // Optimizer steps done when the command took effect; not set for kCancelled.
  int64_t step = 0;

  friend bool operator==(const Unreported&, const Unreported&) = default;
};

// Returns, by increasing number, the commands 1..newest that the checkpoint includes, except:
// - commands that wait;
// - commands that, to the coordinator's knowledge, have taken effect (Command::replay, begun);
// - commands that this session carries out again (the natures DONE_ONCE and CHANGES_NOTHING).
//
// `position` and `step`: those of the checkpoint. `steps`: for the number of a command, the step at
// which it took effect, if the checkpoint knows the step. For other commands the step of the
// checkpoint is reported.
std::vector<Unreported> FindUnreported(const CommandSchedule::Position& position, int64_t step,
                                       const std::map<int64_t, int64_t>& steps, int64_t newest,
                                       const CommandSchedule::Get& get);

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_SCHEDULE_COMMAND_SCHEDULE_H_
