// Where steps lie in the epochs of a data set: pure arithmetic over (epoch, cursor), without the
// order of the samples. docs/reference/sampler.md is the specification.
#ifndef MUSTER_WORKER_DATA_PACE_H_
#define MUSTER_WORKER_DATA_PACE_H_

#include <compare>
#include <cstdint>

namespace muster::data {

// What happens with the samples at the end of an epoch that do not fill a global batch: they are
// dropped; or the batch is filled up from the start of the epoch's order; or the first ranks get
// them, and the other ranks have fewer samples in that step, or none.
enum class Last { kDrop, kPad, kUneven };

// What all ranks together have consumed: all epochs before `epoch`, and `cursor` samples of this
// epoch. Independent of the world size, unless each rank has its own file.
struct Position {
  int64_t epoch = 0;
  int64_t cursor = 0;
  friend auto operator<=>(const Position&, const Position&) = default;
};

struct Pace {
  int64_t epoch_size = 0;  // where the cursor ends
  int64_t global_batch = 1;
  Last last = Last::kDrop;

  // Where the step that follows `position` begins: `position` itself, or the start of the next
  // epoch if the rest of this epoch is not enough for a step.
  Position Begin(Position position) const;
  // What has been consumed after the step that follows `position`. Its cursor never passes the
  // size of the epoch, and only the step that begins the next epoch moves it there.
  Position After(Position position) const;
  // The same after so many steps.
  Position Ahead(Position position, int64_t steps) const;

  // The number of steps of one whole epoch, and of what follows `cursor` in an epoch.
  int64_t steps_per_epoch() const { return StepsFrom(0); }
  int64_t StepsFrom(int64_t cursor) const;
  // The steps that follow `from` until everything before `to` is consumed or dropped; the last one
  // of them may go beyond `to`. 0: nothing is missing. `to` must not be negative.
  int64_t StepsTo(Position from, Position to) const;

  // The place of one of the samples that the steps after `position` take: number `sample`, from 0.
  // What an epoch drops is not counted, nor what fills up its last batch.
  Position PlaceOf(Position position, int64_t sample) const;

  friend bool operator==(const Pace&, const Pace&) = default;

 private:
  // In what follows `cursor` in an epoch.
  int64_t SamplesFrom(int64_t cursor) const;
};

}  // namespace muster::data

#endif  // MUSTER_WORKER_DATA_PACE_H_
