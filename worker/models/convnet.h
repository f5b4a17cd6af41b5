// A residual network (He et al. 2015, "Deep Residual Learning for Image Recognition") of basic blocks with
// BatchNorm, for small images: a 3x3 stem without pooling, stages that halve the image from the second on, global
// average pooling, one linear layer. Names, layouts and initial values as in torchvision's ResNet.
#ifndef MUSTER_WORKER_MODELS_CONVNET_H_
#define MUSTER_WORKER_MODELS_CONVNET_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "nlohmann/json_fwd.hpp"
#include "worker/models/model.h"

namespace muster::models {

// Options: inputs [channels, height, width], widths [..], blocks [..] (one each per stage), classes.
absl::StatusOr<std::unique_ptr<Model>> CreateConvnet(const nlohmann::json& options, uint64_t seed);

}  // namespace muster::models

#endif  // MUSTER_WORKER_MODELS_CONVNET_H_
