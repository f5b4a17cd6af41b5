// Models from shared objects that users build (plugin/muster/plugin.h, docs/how-to/plugins.md).
#ifndef MUSTER_WORKER_MODELS_PLUGIN_PLUGIN_H_
#define MUSTER_WORKER_MODELS_PLUGIN_PLUGIN_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "proto/muster/v1/job_spec.pb.h"
#include "worker/models/model.h"

namespace muster::models {

// spec: valid (common/jobspec). The shared object is loaded once per process and stays. In a scope
// of deferred_values.h the model is recorded (recording.h), so that its parameters have no memory
// yet. If it cannot be recorded, it is made a second time, with memory, and the refusal of the
// scope's values says why. Errors name the plug-in: those of CheckPluginFile; in a process that an
// agent has started also those of AllowedPlugin (common/pluginfolders); INVALID_ARGUMENT: no model
// of this name (with those there are), options that it does not know or take, wrong parameters, an
// output of another shape than its `input` says; FAILED_PRECONDITION: it cannot be loaded. What its
// code throws later becomes a ModelError out of Forward or Loss, and FAILED_PRECONDITION out of
// BeforeStep. The same error comes out of BeforeStep where a FlagHook uses a value (value_watch.h),
// also if the hook catches the exception that refuses this.
absl::StatusOr<std::unique_ptr<Model>> CreatePlugin(const v1::PluginSpec& spec, uint64_t seed);

}  // namespace muster::models

#endif  // MUSTER_WORKER_MODELS_PLUGIN_PLUGIN_H_
