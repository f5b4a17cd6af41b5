#include "worker/data/pace.h"

#include <algorithm>

namespace muster::data {

int64_t Pace::StepsFrom(int64_t cursor) const {
  const int64_t rest = std::max<int64_t>(epoch_size - cursor, 0);
  return last == Last::kDrop ? rest / global_batch : (rest + global_batch - 1) / global_batch;
}

Position Pace::Begin(Position position) const {
  return StepsFrom(position.cursor) > 0 ? position : Position{position.epoch + 1, 0};
}

Position Pace::After(Position position) const {
  const Position begin = Begin(position);
  return {begin.epoch, std::min(begin.cursor + global_batch, epoch_size)};
}

Position Pace::Ahead(Position position, int64_t steps) const {
  if (steps == 0) return position;
  const Position begin = Begin(position);
  const int64_t here = StepsFrom(begin.cursor);
  if (steps <= here) {
    return {begin.epoch, std::min(begin.cursor + steps * global_batch, epoch_size)};
  }
  const int64_t per_epoch = steps_per_epoch();
  const int64_t later = steps - here - 1;  // steps in later epochs before the last step
  return {begin.epoch + 1 + later / per_epoch,
          std::min((later % per_epoch + 1) * global_batch, epoch_size)};
}

int64_t Pace::SamplesFrom(int64_t cursor) const {
  return last == Last::kDrop ? StepsFrom(cursor) * global_batch : epoch_size - cursor;
}

Position Pace::PlaceOf(Position position, int64_t sample) const {
  const Position begin = Begin(position);
  const int64_t here = SamplesFrom(begin.cursor);
  if (sample < here) return {begin.epoch, begin.cursor + sample};
  const int64_t per_epoch = SamplesFrom(0);
  const int64_t later = sample - here;
  return {begin.epoch + 1 + later / per_epoch, later % per_epoch};
}

int64_t Pace::StepsTo(Position from, Position to) const {
  const Position begin = Begin(from);
  if (begin >= to) return 0;
  // Counts the steps that begin before `to` in an epoch, of the `steps` steps from `cursor` on.
  const auto until = [&](int64_t cursor, int64_t steps) {
    return std::min((to.cursor - cursor + global_batch - 1) / global_batch, steps);
  };
  const int64_t here = StepsFrom(begin.cursor);
  if (begin.epoch == to.epoch) return until(begin.cursor, here);
  const int64_t per_epoch = steps_per_epoch();
  return here + (to.epoch - begin.epoch - 1) * per_epoch + until(0, per_epoch);
}

}  // namespace muster::data
