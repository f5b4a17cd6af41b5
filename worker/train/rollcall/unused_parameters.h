// Tells once which trainable parameters no rank used in a step. Each rank knows the unused
// parameters of the pieces that it updates. A rank with news says so in its roll call record. Then
// the ranks exchange their lists, and all ranks name the same parameters. Without news, nothing is
// exchanged.
#ifndef MUSTER_WORKER_TRAIN_ROLLCALL_UNUSED_PARAMETERS_H_
#define MUSTER_WORKER_TRAIN_ROLLCALL_UNUSED_PARAMETERS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/comm/communicator.h"
#include "worker/train/reports/coordinator_interface.h"

namespace muster::train {

// Threading: one thread.
class UnusedParameters {
 public:
  // The most notices of a session. A model that chooses other parts in each step could cause many.
  static constexpr int kMostNotices = 5;

  // names: of the model's parameters.
  explicit UnusedParameters(std::vector<std::string> names)
      : names_(std::move(names)), first_(names_.size()), told_(names_.size()) {}

  // Records that no rank used the parameters with these indices in this step.
  void Note(int64_t step, const std::vector<size_t>& unused);

  // Whether this rank knows an unused parameter that no notice has named.
  bool news() const { return news_; }

  // Exchanges the lists after a roll call in which some rank had news. A collective. The returned
  // notice names the parameters of all lists and is the same on all ranks. `step`: optimizer steps
  // done. Errors: the communicator's.
  absl::StatusOr<Notice> Exchange(int64_t step, comm::Communicator* communicator);

 private:
  const std::vector<std::string> names_;
  std::vector<int64_t> first_;  // by parameter: the first step without use; 0: none known
  std::vector<bool> told_;
  int notices_ = 0;
  bool news_ = false;
};

// Returns the text of the notice. first: for each parameter, the step in which no rank used it; 0:
// not named. last: no further notice follows. Pure.
std::string DescribeUnused(const std::vector<std::string>& names, const std::vector<int64_t>& first,
                           bool last);

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_ROLLCALL_UNUSED_PARAMETERS_H_
