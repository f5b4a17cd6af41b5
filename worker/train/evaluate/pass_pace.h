// When the ranks ask, in the course of a pass over data, whether the pass has to end: about twice a
// second, so that a question costs little beside the rounds between two of them. Pure: from the
// same durations all ranks choose the same rounds.
#ifndef MUSTER_WORKER_TRAIN_EVALUATE_PASS_PACE_H_
#define MUSTER_WORKER_TRAIN_EVALUATE_PASS_PACE_H_

#include <algorithm>
#include <cstdint>

namespace muster::train {

class PassPace {
 public:
  // Whether the ranks ask before this round, counted from 0.
  bool Due(int64_t round) const { return round == next_; }

  // They have asked before this round. `seconds`: since the question before, or since the begin of
  // the pass, on the slowest rank.
  void Asked(int64_t round, double seconds) {
    if (seconds < 0.5) {
      between_ *= 2;
    } else if (seconds > 1) {
      const double fewer = static_cast<double>(between_) / seconds;
      between_ = std::max<int64_t>(1, static_cast<int64_t>(fewer));
    }
    next_ = round + between_;
  }

 private:
  int64_t between_ = 1;  // rounds
  int64_t next_ = 1;     // a pass of one round asks nothing
};

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_EVALUATE_PASS_PACE_H_
