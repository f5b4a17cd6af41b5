// Whether a model can train with a micro-batch of one sample.
#ifndef MUSTER_WORKER_TRAIN_TRAINING_SINGLE_SAMPLE_H_
#define MUSTER_WORKER_TRAIN_TRAINING_SINGLE_SAMPLE_H_

#include <string>

#include "worker/data/dataset.h"
#include "worker/train/job/job.h"

namespace muster::train {

// Why the job's model cannot, although it can with two samples, in its own words; empty if it can,
// or if that is not known. Makes a second model on the CPU, runs its forward in the mode of
// training on blank samples of the data set, and drops it.
std::string WhyNoSingleSample(const Job& job, const data::Dataset& dataset);

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_TRAINING_SINGLE_SAMPLE_H_
