// Models from shared objects that users build (plugin/muster/plugin.h, docs/how-to/plugins.md).
#ifndef MUSTER_WORKER_MODELS_PLUGIN_PLUGIN_H_
#define MUSTER_WORKER_MODELS_PLUGIN_PLUGIN_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "proto/muster/v1/job_spec.pb.h"
#include "worker/models/model.h"

namespace muster::models {

// Makes the model of a plug-in. spec: valid (common/jobspec). The shared object is loaded once per
// process and stays loaded.
// In a scope of deferred_values.h the model is recorded (recording.h), so that its parameters have
// no memory yet. A model that cannot be recorded is made again with memory, and the refusal of the
// scope's values gives the reason.
// A later exception of the plug-in's code becomes a ModelError in Forward and Loss, and
// FAILED_PRECONDITION in BeforeStep. A FlagHook that uses a value (value_watch.h) causes the same
// error of BeforeStep, even if the hook catches the watch's exception.
// Errors name the plug-in:
// - the errors of CheckPluginFile, and of AllowedPlugin (common/pluginfolders) in a process that an
//   agent has started
// - INVALID_ARGUMENT: no model of this name (with the existing names), unknown or wrong options,
//   wrong parameters, or an output of another shape than `input` says
// - FAILED_PRECONDITION: the file cannot be loaded
absl::StatusOr<std::unique_ptr<Model>> CreatePlugin(const v1::PluginSpec& spec, uint64_t seed);

}  // namespace muster::models

#endif  // MUSTER_WORKER_MODELS_PLUGIN_PLUGIN_H_
