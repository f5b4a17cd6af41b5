// The headers that most tests of the worker include.
#pragma once

#include "third_party/precompiled/tests.hh"

#include "ATen/ops/randn.h"
#include "ATen/ops/tensor.h"
#include "c10/core/GradMode.h"
#include "third_party/precompiled/torch.hh"
