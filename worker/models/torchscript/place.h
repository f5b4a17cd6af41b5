// Where something is in the code of a TorchScript file, for messages.
#ifndef MUSTER_WORKER_MODELS_TORCHSCRIPT_PLACE_H_
#define MUSTER_WORKER_MODELS_TORCHSCRIPT_PLACE_H_

#include <string>

#include "torch/csrc/jit/frontend/source_range.h"

namespace muster::models {

// " (line 12 of model.py)": in the Python file that the module was made from, else in the code in
// the file ("code/__torch__.py"). Empty where LibTorch knows neither.
std::string PlaceOf(const torch::jit::SourceRange& range);

// A text out of a file, as a part of a message: valid UTF-8 in one line, at most 200 bytes of it.
std::string Quotable(const std::string& text);

}  // namespace muster::models

#endif  // MUSTER_WORKER_MODELS_TORCHSCRIPT_PLACE_H_
