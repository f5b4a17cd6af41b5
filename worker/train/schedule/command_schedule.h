// When each command of the job's log takes effect. Every rank has a schedule and gives it the same
// commands at the same step boundaries (the roll call says up to which number), so all ranks decide
// the same. Pure. docs/concepts/commands.md describes the protocol.
//
// A command is taken in at the first boundary at which every rank holds it, and takes effect there,
// or at its at_step. A change that took effect in an earlier generation takes effect again at the
// same step, and later changes take effect after it.
#ifndef MUSTER_WORKER_TRAIN_SCHEDULE_COMMAND_SCHEDULE_H_
#define MUSTER_WORKER_TRAIN_SCHEDULE_COMMAND_SCHEDULE_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "worker/train/reports/outside.h"

namespace muster::train {

// The path that the command writes for others than the job; null if it writes none.
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
  // Continues from a checkpoint. Of the commands up to `taken`, these are taken in again: those
  // that wait, and those that must be carried out although the checkpoint includes them (a pause
  // that is in force, a checkpoint that was not finished).
  explicit CommandSchedule(const Position& restored) : restored_(restored) {}

  // A command that takes effect now.
  struct Due {
    Command command;
    // Of a cancel: its target was waiting and is cancelled. False: there was nothing to cancel.
    bool cancels = false;
  };
  // Takes in the commands up to `newest` at the boundary after `step` steps. Every rank holds these
  // commands. `newest` never decreases.
  void TakeIn(int64_t newest, int64_t step, const Get& get);
  // Returns the next command that takes effect at that boundary: first cancels, then by step, then
  // by number. It counts as done from now on. A checkpoint that is written before the next call
  // stores the later ones as waiting.
  std::optional<Due> Next(int64_t step);

  // For a checkpoint.
  Position position() const;

 private:
  struct Waiting {
    int64_t due = 0;
    Command command;
  };

  void TakeIn(const Command& command, int64_t step);

  Position restored_;
  int64_t taken_ = 0;             // the newest command taken in by this session
  int64_t floor_ = 0;             // the latest step at which an earlier command is repeated
  std::vector<Waiting> waiting_;  // by increasing number
  std::deque<Due> cancels_;       // taken in, not yet returned by Next
};

// A session that starts from a checkpoint reports again how the commands ended that the checkpoint
// includes, because the generation that carried them out may have ended before the coordinator
// heard of it.
struct Unreported {
  enum class What {
    // It took effect and is finished.
    kFinished,
    // It was cancelled before it took effect.
    kCancelled,
    // It took effect. The coordinator already has an end of it, which may be wrong: the coordinator
    // may have ended the command with its job, before it found this checkpoint.
    kApplied,
  };
  int64_t number = 0;
  What what = What::kFinished;
  // Optimizer steps done when it took effect; not set for kCancelled.
  int64_t step = 0;

  friend bool operator==(const Unreported&, const Unreported&) = default;
};

// By increasing number, of the commands 1..newest that the checkpoint includes. Left out are
// commands that wait, that the coordinator knows to have taken effect (Command::replay, begun), and
// that this session carries out again (the natures DONE_ONCE and CHANGES_NOTHING). `position`
// and `step` are those of the checkpoint. `steps` maps the number of a command to the step at which
// it took effect, as far as the checkpoint says so. For other commands the step of the checkpoint
// is reported.
std::vector<Unreported> FindUnreported(const CommandSchedule::Position& position, int64_t step,
                                       const std::map<int64_t, int64_t>& steps, int64_t newest,
                                       const CommandSchedule::Get& get);

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_SCHEDULE_COMMAND_SCHEDULE_H_
