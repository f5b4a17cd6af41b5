// The units of a residual network: the stem, one unit per block, and the head.
#ifndef MUSTER_WORKER_MODELS_CONVNET_UNITS_H_
#define MUSTER_WORKER_MODELS_CONVNET_UNITS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "worker/models/unit.h"

namespace muster::models {

struct ConvnetShape {
  // The dimensions of an image.
  int64_t channels = 0;
  int64_t height = 0;
  int64_t width = 0;
  // The channels and the number of blocks of each stage: equally many numbers, at least one.
  std::vector<int64_t> widths;
  std::vector<int64_t> blocks;
  int64_t classes = 0;
};

// torch.nn.BatchNorm2d's defaults.
inline constexpr double kBatchNormEpsilon = 1e-5;
inline constexpr double kBatchNormMomentum = 0.1;

// The number of pixels of a side after a convolution of stride 2: 3x3 with padding 1, or 1x1
// without.
inline int64_t HalfSide(int64_t side) { return (side + 1) / 2; }

// rows float32 [B, ...] of channels x height x width numbers -> logits float32 [B, classes].
std::unique_ptr<Unit> MakeConvnetRoot(const ConvnetShape& shape, uint64_t seed);

}  // namespace muster::models

#endif  // MUSTER_WORKER_MODELS_CONVNET_UNITS_H_
