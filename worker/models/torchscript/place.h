// Places in the code of a TorchScript file, for messages.
#ifndef MUSTER_WORKER_MODELS_TORCHSCRIPT_PLACE_H_
#define MUSTER_WORKER_MODELS_TORCHSCRIPT_PLACE_H_

#include <string>

#include "torch/csrc/jit/frontend/source_range.h"

namespace muster::models {

// Returns " (line 12 of model.py)": a line of the Python file that the module was made from,
// otherwise of the code in the file ("code/__torch__.py"). Empty if LibTorch knows neither.
std::string PlaceOf(const torch::jit::SourceRange& range);

// Returns a text of a file for a message: valid UTF-8 in one line, at most 200 bytes of the text.
std::string Quotable(const std::string& text);

}  // namespace muster::models

#endif  // MUSTER_WORKER_MODELS_TORCHSCRIPT_PLACE_H_
