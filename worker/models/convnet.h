// A residual network (He et al. 2015, "Deep Residual Learning for Image Recognition") of basic
// blocks with BatchNorm, for small images: a 3x3 stem without pooling, stages that halve the image
// from the second on, global average pooling, one linear layer. Names, layouts and initial values
// as in torchvision's ResNet.
#ifndef MUSTER_WORKER_MODELS_CONVNET_H_
#define MUSTER_WORKER_MODELS_CONVNET_H_

#include <cstdint>
#include <memory>

#include "proto/muster/v1/job_spec.pb.h"
#include "worker/models/model.h"

namespace muster::models {

// spec: with its defaults, and valid (common/jobspec).
std::unique_ptr<Model> CreateConvnet(const v1::ConvnetSpec& spec, uint64_t seed);

}  // namespace muster::models

#endif  // MUSTER_WORKER_MODELS_CONVNET_H_
