// Checks that find, from the job file, data sizes and position alone, that a job must fail later. A
// session calls them at its start, so that no training is lost. CheckBest is also called before
// samples are skipped. Pure.
#ifndef MUSTER_WORKER_TRAIN_START_KNOWN_ENDS_H_
#define MUSTER_WORKER_TRAIN_START_KNOWN_ENDS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "proto/muster/v1/job_spec.pb.h"
#include "worker/data/sampler.h"
#include "worker/train/job/job.h"
#include "worker/train/job/stages.h"

namespace muster::train {

// The division of the samples into micro-batches.
struct Division {
  int64_t size = 0;                // samples of the data set that all ranks share
  std::vector<int64_t> own_sizes;  // for each rank's own file; empty: all ranks share the set
  int64_t world_size = 1;
  BatchConfig batch;
};

// Returns the first step, counted from 1 at `position`, in which some rank has a micro-batch of one
// sample; absent if there is none.
std::optional<int64_t> FirstSingleSample(const Division& division, const data::Position& position);

// Whether the model is known to need more than one sample in each micro-batch of training. True for
// a convnet whose last stage has images of one pixel: BatchNorm would have one number per channel.
bool NeedsTwoSamples(const v1::ModelSpec& model);

// Whether a validation pass after this step may make a checkpoint the best checkpoint. `due`: the
// pass right after this step has not run yet.
bool ValidationCanStillMakeBest(const std::vector<PlannedStage>& stages, int64_t step, bool due);

// Returns the error of a job with a micro-batch of one sample in `step`. `model`: what cannot train
// with one sample, in words.
absl::Status SingleSampleError(const std::string& model, const Division& division, int64_t step);

// Checks a job that continues from another job's checkpoint after `step`. INVALID_ARGUMENT with the
// cause kStartDoesNotFit: no step is left. The job would end at once as if it had trained.
absl::Status CheckStepsAreLeft(const std::vector<PlannedStage>& stages, int64_t step,
                               const std::string& checkpoint);

// INVALID_ARGUMENT: the job exports the best checkpoint, and no checkpoint can become the best.
absl::Status CheckBest(const std::optional<ExportConfig>& weights_export,
                       const std::vector<PlannedStage>& stages, int64_t step, bool due);

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_START_KNOWN_ENDS_H_
