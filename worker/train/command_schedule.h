// When each command of the job's log takes effect. Every rank has a schedule and gives it the same
// commands at the same step boundaries (the roll call says up to which number), so all ranks decide
// the same. Pure. docs/commands.md describes the protocol.
//
// A command is taken in at the first boundary at which every rank holds it, and takes effect there,
// or at its at_step. A change that took effect in an earlier generation takes effect again at the
// same step, and later changes take effect after it.
#ifndef MUSTER_WORKER_TRAIN_COMMAND_SCHEDULE_H_
#define MUSTER_WORKER_TRAIN_COMMAND_SCHEDULE_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <vector>

#include "worker/train/outside.h"

namespace muster::train {

// True for a command that must be carried out even if a checkpoint was written after it took
// effect. The coordinator says when such a command is done; until then it still holds, or its end
// was not reported.
bool IsDoneAnew(const Command& command);

class CommandSchedule {
 public:
  // The schedule's part of a checkpoint; empty for a new job.
  struct Position {
    // The newest command taken in.
    int64_t taken = 0;
    // Those up to it that have not taken effect, by rising number.
    std::vector<int64_t> waiting;
    friend bool operator==(const Position&, const Position&) = default;
  };
  using Get = std::function<Command(int64_t number)>;

  CommandSchedule() = default;
  // Continues from a checkpoint. Of the commands up to `taken`, those that wait are taken in again,
  // and so are those that must be carried out again although the checkpoint has them: a pause that
  // lasts, a checkpoint that was not finished.
  explicit CommandSchedule(const Position& restored) : restored_(restored) {}

  // A command that is due now.
  struct Due {
    Command command;
    // For a CancelCommand: its target was waiting and is cancelled. Otherwise there was nothing to
    // cancel.
    bool cancels = false;
  };
  // At the boundary after `step` steps, where every rank holds the commands up to `newest` (which
  // does not fall): takes them in.
  void TakeIn(int64_t newest, int64_t step, const Get& get);
  // The next command that is due at that boundary: cancels first, then by step, then by number. It
  // counts as done from now on. The later ones still wait, and a checkpoint that is written in
  // between says so.
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
  int64_t taken_ = 0;             // looked at
  int64_t floor_ = 0;             // the latest step at which an earlier command is done again
  std::vector<Waiting> waiting_;  // by rising number
  std::deque<Due> cancels_;       // taken in, not told yet
};

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_COMMAND_SCHEDULE_H_
