// Where a session stands between two steps, and how a checkpoint tells it. The session owns it; its
// parts read it, and each field says who changes it.
#ifndef MUSTER_WORKER_TRAIN_STANDING_H_
#define MUSTER_WORKER_TRAIN_STANDING_H_

#include <cstdint>
#include <deque>
#include <utility>

#include "worker/checkpoint/saver.h"
#include "worker/data/sampler.h"

namespace muster::train {

struct Standing {
  // ---- The session, step by step and stage by stage.
  const char* stage = "";
  int64_t step = 0;         // optimizer steps done
  data::Position position;  // what they consumed
  // A validation pass is due after this step, and has not run: it is left to whoever goes on from
  // here.
  bool validation_due = false;

  // ---- Commands.
  double learning_rate = 0;  // what the job's schedule scales
  // By a command, or because the job goes on elsewhere: nothing more is done.
  bool stopped = false;
  bool preempted = false;  // it goes on elsewhere
  // The newest commands that took effect, with their steps, by time.
  std::deque<std::pair<int64_t, int64_t>> applied;

  // The command took effect at this step. Keeps the newest 256: those that a coordinator has not
  // heard of are among them.
  void Applied(int64_t command);

  // What a checkpoint of this step says of all this. jobs_rate: the rate of the job file, which a
  // checkpoint does not repeat.
  void Describe(double jobs_rate, checkpoint::SavePoint* point) const;
  // Goes on from there. learning_rate is the job file's before.
  void GoOnFrom(const checkpoint::SavePoint& point);
};

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_STANDING_H_
