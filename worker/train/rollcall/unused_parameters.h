// Tells once which trainable parameters no rank used in a step. Each rank knows it of the pieces
// that it updates, and says in its roll call record that it has something to tell; then the ranks
// exchange what they know, and all name the same parameters. Where all parameters are used, nothing
// is exchanged.
#ifndef MUSTER_WORKER_TRAIN_ROLLCALL_UNUSED_PARAMETERS_H_
#define MUSTER_WORKER_TRAIN_ROLLCALL_UNUSED_PARAMETERS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/comm/communicator.h"
#include "worker/train/reports/outside.h"

namespace muster::train {

// Threading: one thread.
class UnusedParameters {
 public:
  // In one session. A model that chooses among its parts anew in each step may have many of them.
  static constexpr int kMostNotices = 5;

  // names: of the model's parameters.
  explicit UnusedParameters(std::vector<std::string> names)
      : names_(std::move(names)), first_(names_.size()), told_(names_.size()) {}

  // No rank used these parameters in this step, by their indices.
  void Note(int64_t step, const std::vector<size_t>& unused);

  // Whether this rank knows of a parameter that was not told.
  bool news() const { return news_; }

  // A collective, after a roll call in which some rank had news. The notice is the same on all
  // ranks; it names what any rank knows. `step`: optimizer steps done. Errors: the communicator's.
  absl::StatusOr<Notice> Exchange(int64_t step, comm::Communicator* communicator);

 private:
  const std::vector<std::string> names_;
  std::vector<int64_t> first_;  // by parameter: the first step that this rank knows of; 0: none
  std::vector<bool> told_;
  int notices_ = 0;
  bool news_ = false;
};

// The text of the notice. first: by parameter, the step in which no rank used it; 0: not named.
// last: no further notice follows. Pure.
std::string DescribeUnused(const std::vector<std::string>& names, const std::vector<int64_t>& first,
                           bool last);

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_ROLLCALL_UNUSED_PARAMETERS_H_
