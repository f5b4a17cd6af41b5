// The metrics of each finished step, kept until the roll call has given the step's mean loss over
// all ranks.
#ifndef MUSTER_WORKER_TRAIN_ROLLCALL_LOSS_REPORTS_H_
#define MUSTER_WORKER_TRAIN_ROLLCALL_LOSS_REPORTS_H_

#include <cstdint>
#include <deque>
#include <vector>

#include "proto/muster/v1/metrics.pb.h"
#include "worker/models/model.h"
#include "worker/train/rollcall/roll_call_plan.h"
#include "worker/train/step/step_result.h"

namespace muster::train {

// Threading: the session's thread.
class LossReports {
 public:
  // peak_flops: FLOP/s of which the devices of all ranks are capable; 0: not known.
  explicit LossReports(double peak_flops) : peak_flops_(peak_flops) {}

  // The step after which `step` optimizer steps are done. `samples`: of all ranks.
  void Add(int64_t step, int64_t samples, const models::Model& model);
  // The duration of a step, including its roll call.
  void SetSeconds(int64_t step, double seconds);
  // What a step has measured. Called before Complete is called with its loss.
  void Settle(int64_t step, const StepResult& result);
  // Returns the metrics that are complete with this loss, oldest first. An earlier step whose loss
  // was never reported has none.
  std::vector<v1::StepMetrics> Complete(const StepLoss& loss, const models::Model& model);

 private:
  struct Waiting {
    v1::StepMetrics metrics;
    // Of the model's forward and backward passes on all ranks; 0: the model does not know.
    double flops = 0;
  };
  Waiting* Find(int64_t step);  // null: its metrics are complete, or it was never added

  std::deque<Waiting> waiting_;  // oldest first
  const double peak_flops_;
};

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_ROLLCALL_LOSS_REPORTS_H_
