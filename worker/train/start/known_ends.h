// Ends of a job that its file and the sizes of its data show before it trains: they are errors of
// its start, so that no training is lost by them. Pure.
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

// How the samples are divided into micro-batches.
struct Division {
  int64_t size = 0;                // samples of the data set that all ranks share
  std::vector<int64_t> own_sizes;  // of each rank's own file instead; empty: the set is common
  int64_t world_size = 1;
  BatchConfig batch;
};

// The first of the next steps, from 1, in which some rank has a micro-batch of one sample. Absent:
// there is none.
std::optional<int64_t> FirstSingleSample(const Division& division, const data::Position& position);

// Whether the model is known to need more than one sample in each micro-batch of training: a
// convnet whose last stage sees an image of one pixel, so that BatchNorm has one number of each
// channel.
bool NeedsTwoSamples(const v1::ModelSpec& model);

// Whether a validation pass after this step may make a checkpoint the best one. `due`: a pass after
// this very step has not run yet.
bool APassOfTheBestComes(const std::vector<PlannedStage>& stages, int64_t step, bool due);

// The error of a job that comes to that step. `model`: what cannot train then, in words.
absl::Status SingleSampleError(const std::string& model, const Division& division, int64_t step);

// For a job that trains and goes on after `step` from another job's checkpoint. INVALID_ARGUMENT
// with the cause kStartDoesNotFit: no step is left, so that it would end at once, as if it had
// trained.
absl::Status CheckStepsAreLeft(const std::vector<PlannedStage>& stages, int64_t step,
                               const std::string& checkpoint);

// INVALID_ARGUMENT: the job exports the best checkpoint, and there will be none.
absl::Status CheckBest(const std::optional<ExportConfig>& weights_export,
                       const std::vector<PlannedStage>& stages, int64_t step, bool due);

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_START_KNOWN_ENDS_H_
