// A replacement for LibTorch's header of this name: see third_party/torch/libtorch.BUILD.
#pragma once

#ifdef MUSTER_WHOLE_ATEN
#include_next <ATen/TensorUtils.h>
#else
#include <ATen/core/Tensor.h>
#endif
