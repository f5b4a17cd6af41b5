// A job's data set as one rank holds it: a set that is common to all ranks, or a file of the rank's
// own.
#ifndef MUSTER_WORKER_TRAIN_DATA_RANK_DATA_H_
#define MUSTER_WORKER_TRAIN_DATA_RANK_DATA_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/comm/communicator.h"
#include "worker/data/dataset.h"
#include "worker/data/evaluation.h"
#include "worker/data/sampler.h"
#include "worker/models/batch.h"
#include "worker/train/job/job.h"

namespace muster::train {

struct RankData {
  std::unique_ptr<data::Dataset> dataset;
  // Samples in each rank's own file, in rank order; empty: the set is common. Equal on all ranks.
  std::vector<int64_t> own_sizes;

  // What the sampler of this rank needs to know of the files; absent if the set is common.
  std::optional<data::OwnFile> Own(int64_t rank) const;
  // The plan of a pass over every sample once, at most `per_rank` of them at a time on a rank.
  data::EvaluationPlan Evaluation(int64_t world_size, int64_t per_rank) const;
};

// A collective: opens the files that this rank reads, for a model that takes `input`, and checks
// their tokens or labels: of files that all ranks share each rank reads only its part, of its own
// file all. What any rank finds is the error of all of them (agreed_status.h). With kAllowed some
// of the ranks' own files may have no samples. `name`: "data.train", "data.test", ..., for errors.
// Errors: the data set's; INVALID_ARGUMENT if the number of files is not the number of ranks; the
// communicator's.
absl::StatusOr<RankData> OpenRankData(const std::string& name, const DataConfig& config,
                                      const models::InputSpec& input, data::Emptiness emptiness,
                                      comm::Communicator& communicator,
                                      data::Labels labels = data::Labels::kNeeded);

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_DATA_RANK_DATA_H_
