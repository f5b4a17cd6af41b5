// The events of an event file, as TensorBoard reads them (docs/tensorboard.md). Pure.
#ifndef MUSTER_WORKER_TENSORBOARD_EVENT_H_
#define MUSTER_WORKER_TENSORBOARD_EVENT_H_

#include <cstdint>
#include <string>

#include "proto/muster/v1/metrics.pb.h"
#include "worker/tensorboard/event.pb.h"

namespace muster::tensorboard {

// The first event of a file. `wall_time`, also below: seconds since 1970.
Event VersionEvent(double wall_time);
// A reader forgets all numbers and texts of this step and of later ones that it has read so far.
Event StartEvent(int64_t step, double wall_time);

// An event without values. `step`: optimizer steps done.
Event EventAt(int64_t step, double wall_time);
// Adds a value with a tag: a number, which TensorBoard draws as a curve, or a text.
void AddNumber(const std::string& tag, double number, Event* event);
// Adds a value that is no number to a number's tag: TensorBoard's data server
// forgets the tag's numbers of this step and of later ones, and shows nothing in their place.
void AddNoNumber(const std::string& tag, Event* event);
void AddText(const std::string& tag, const std::string& text, Event* event);

// The event as a record of a file.
std::string RecordOf(const Event& event);

// The numbers of a step, or of a pass of validation or of a test, with their tags
// (docs/tensorboard.md).
//
// `metrics`: as a session reports them. Samples and tokens per second are computed as the
// coordinator computes them.
Event ScalarsOf(const v1::StepMetrics& metrics, double wall_time);

}  // namespace muster::tensorboard

#endif  // MUSTER_WORKER_TENSORBOARD_EVENT_H_
