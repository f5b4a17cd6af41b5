// The headers that most files of the worker with tensors include.
#pragma once

#include "third_party/precompiled/absl.hh"

#include "ATen/TensorOperators.h"
#include "ATen/core/Tensor.h"
#include "ATen/core/grad_mode.h"
#include "ATen/ops/arange.h"
#include "ATen/ops/empty.h"
#include "ATen/ops/full.h"
#include "ATen/ops/item.h"
#include "ATen/ops/ones.h"
#include "ATen/ops/zeros.h"
