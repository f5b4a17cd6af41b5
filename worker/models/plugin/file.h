// A check of a plug-in's file without loading the file: no code of the plug-in runs.
#ifndef MUSTER_WORKER_MODELS_PLUGIN_FILE_H_
#define MUSTER_WORKER_MODELS_PLUGIN_FILE_H_

#include <string>

#include "absl/status/status.h"

namespace muster::models {

// OK for a complete shared object for this machine. It must be built against the same versions as
// this program of plugin/muster/plugin.h, LibTorch, and the ABI of the C++ library.
// Errors: those of MappedFile::Open; INVALID_ARGUMENT: no shared object for this machine, or no
// plug-in; DATA_LOSS: cut off; FAILED_PRECONDITION: other versions, with every difference.
absl::Status CheckPluginFile(const std::string& path);

}  // namespace muster::models

#endif  // MUSTER_WORKER_MODELS_PLUGIN_FILE_H_
