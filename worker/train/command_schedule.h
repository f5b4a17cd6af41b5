// When each command of the job's log takes effect. Every rank keeps one, is given the same commands
// at the same step boundaries (the roll call says up to which number), and so decides alike. Pure.
// docs/commands.md describes the protocol.
//
// A command is taken in at the first boundary at which every rank holds it, and takes effect there,
// or at its at_step. What an earlier generation changed is changed again at the step of then, and
// what came to change after it, not before it.
#ifndef MUSTER_WORKER_TRAIN_COMMAND_SCHEDULE_H_
#define MUSTER_WORKER_TRAIN_COMMAND_SCHEDULE_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <vector>

#include "worker/train/outside.h"

namespace muster::train {

// Is to be done although a checkpoint was written after it took effect: while the coordinator does
// not say that there is nothing to do any more, it is in force, or its end was not heard of.
bool IsDoneAnew(const Command& command);

class CommandSchedule {
 public:
  // Where a checkpoint stands; a new job's is empty.
  struct Position {
    // The newest command taken in.
    int64_t taken = 0;
    // Those up to it that have not taken effect, by rising number.
    std::vector<int64_t> waiting;
    friend bool operator==(const Position&, const Position&) = default;
  };
  using Get = std::function<Command(int64_t number)>;

  CommandSchedule() = default;
  // Goes on from a checkpoint. Of the commands up to `taken` those that wait are taken in again,
  // and those that are to be done anew although the checkpoint has them: a halt that is in force, a
  // checkpoint that was not finished.
  explicit CommandSchedule(const Position& restored) : restored_(restored) {}

  // What is to be done now.
  struct Due {
    Command command;
    // Of a CancelCommand: its target, which waited, is taken back with it. Else there was nothing
    // to take back.
    bool cancels = false;
  };
  // At the boundary after `step` steps, where every rank holds the commands up to `newest` (which
  // does not fall): takes them in.
  void TakeIn(int64_t newest, int64_t step, const Get& get);
  // The next one that is to be done at that boundary: cancels first, then by their steps, then by
  // their numbers. It counts as done from now on; those behind it still wait, also for a checkpoint
  // that is written meanwhile.
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
