// The places of steps in the epochs of a data set: pure arithmetic over (epoch, cursor), without
// the order of the samples. docs/reference/sampler.md is the specification.
#ifndef MUSTER_WORKER_DATA_PACE_H_
#define MUSTER_WORKER_DATA_PACE_H_

#include <compare>
#include <cstdint>

namespace muster::data {

// The treatment of the samples at the end of an epoch that do not fill a global batch:
// - kDrop: they are dropped;
// - kPad: samples from the start of the epoch's order fill up the batch;
// - kUneven: the first ranks get them, and the other ranks have fewer samples in that step, or
//   none.
enum class Last { kDrop, kPad, kUneven };

// The samples that all ranks together have consumed: all epochs before `epoch`, and `cursor`
// samples of this epoch. Independent of the world size, unless each rank has its own file.
struct Position {
  int64_t epoch = 0;
  int64_t cursor = 0;
  friend auto operator<=>(const Position&, const Position&) = default;
};

struct Pace {
  int64_t epoch_size = 0;  // the largest cursor
  int64_t global_batch = 1;
  Last last = Last::kDrop;

  // The beginning of the step that follows `position`: `position` itself, or the start of the next
  // epoch if the rest of this epoch is not enough for a step.
  Position Begin(Position position) const;
  // The position after the step that follows `position`. The cursor is at most the size of the
  // epoch. Only the step that begins the next epoch moves the cursor to that epoch.
  Position After(Position position) const;
  // The position after so many steps.
  Position Ahead(Position position, int64_t steps) const;

  // The number of steps of a whole epoch, and of the rest of an epoch after `cursor`.
  int64_t steps_per_epoch() const { return StepsFrom(0); }
  int64_t StepsFrom(int64_t cursor) const;
  // The number of steps that follow `from` until everything before `to` is consumed or dropped. The
  // last of them may go beyond `to`. 0: no step is needed. `to` must not be negative.
  int64_t StepsTo(Position from, Position to) const;

  // The place of sample number `sample`, from 0, among the samples that the steps after `position`
  // take. Dropped samples, and samples that fill up a last batch, are not counted.
  Position PlaceOf(Position position, int64_t sample) const;

  friend bool operator==(const Pace&, const Pace&) = default;

 private:
  // The number of samples that the steps take in the rest of an epoch after `cursor`.
  int64_t SamplesFrom(int64_t cursor) const;
};

}  // namespace muster::data

#endif  // MUSTER_WORKER_DATA_PACE_H_
