// The files that a job's model names: its weights and its tokenizer. No file is opened.
#ifndef MUSTER_WORKER_TRAIN_JOB_MODEL_FILES_H_
#define MUSTER_WORKER_TRAIN_JOB_MODEL_FILES_H_

#include <string>

#include "proto/muster/v1/job_spec.pb.h"

namespace muster::train {

// Returns the field of the job file that names the weights, for messages: "model.hf" or
// "model.weights".
const char* WeightsField(const v1::ModelSpec& model);

// Returns the path of the safetensors file, or of the index of a sharded one, that the job names
// for the initial values; "" if the job names none. With hf, the index if only the index exists.
std::string WeightsPath(const v1::ModelSpec& model);

// Returns the path of tokenizer.json in the folder of hf or exported, where the file may be absent;
// "" if the model has no folder.
std::string TokenizerPath(const v1::ModelSpec& model);

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_JOB_MODEL_FILES_H_
