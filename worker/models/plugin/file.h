// What a plug-in's file says of itself, read without loading it: nothing of it runs.
#ifndef MUSTER_WORKER_MODELS_PLUGIN_FILE_H_
#define MUSTER_WORKER_MODELS_PLUGIN_FILE_H_

#include <string>

#include "absl/status/status.h"

namespace muster::models {

// OK for a whole shared object for this machine that was built against the versions of
// plugin/muster/plugin.h, LibTorch and the C++ library's ABI that this program was built against.
// Errors: those of MappedFile::Open; INVALID_ARGUMENT: no shared object for this machine, or no
// plug-in; DATA_LOSS: cut off; FAILED_PRECONDITION: other versions, every difference with both
// versions.
absl::Status CheckPluginFile(const std::string& path);

}  // namespace muster::models

#endif  // MUSTER_WORKER_MODELS_PLUGIN_FILE_H_
