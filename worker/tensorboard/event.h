// The records and events of an event file, as TensorBoard reads them (docs/how-to/tensorboard.md).
// Pure.
#ifndef MUSTER_WORKER_TENSORBOARD_EVENT_H_
#define MUSTER_WORKER_TENSORBOARD_EVENT_H_

#include <cstdint>
#include <istream>
#include <optional>
#include <string>
#include <string_view>

#include "proto/muster/v1/metrics.pb.h"
#include "worker/tensorboard/event.pb.h"

namespace muster::tensorboard {

// CRC-32C (Castagnoli), as RFC 3720 defines it in B.4.
uint32_t Crc32c(std::string_view bytes);

// Returns the CRC-32C of the bytes, rotated and shifted, so that the checksum of bytes that contain
// checksums is no special number.
uint32_t MaskedCrc32c(std::string_view bytes);

// Returns the record of an event file (TFRecord) with this data: length, checksum of the length,
// data, checksum of the data; little endian.
std::string Record(std::string_view data);

// Reads the record at which `file` stands, and moves `file` behind it. Nothing: the file ends, or
// no complete and correct record follows; a reader cannot go on.
std::optional<std::string> ReadRecord(std::istream& file);

// Returns the first event of a file. `wall_time`, also below: seconds since 1970.
Event VersionEvent(double wall_time);
// Returns an event at which a reader forgets all numbers and texts of this step and of later steps
// that it has read so far.
Event StartEvent(int64_t step, double wall_time);

// Returns an event without values. `step`: optimizer steps done.
Event EventAt(int64_t step, double wall_time);
// Adds a value with a tag: a number, which TensorBoard draws as a curve, or a text.
void AddNumber(const std::string& tag, double number, Event* event);
// Adds a value that is no number to a number's tag. TensorBoard's data server then forgets the
// tag's numbers of this step and of later steps, and shows nothing in their place.
void AddNoNumber(const std::string& tag, Event* event);
void AddText(const std::string& tag, const std::string& text, Event* event);

// Returns the event as a record of a file.
std::string RecordOf(const Event& event);

// Returns the numbers of a step, or of a pass of validation or of a test, with their tags
// (docs/how-to/tensorboard.md).
//
// `metrics`: as a session reports them. Samples and tokens per second are computed in the same way
// as in the coordinator.
Event ScalarsOf(const v1::StepMetrics& metrics, double wall_time);

}  // namespace muster::tensorboard

#endif  // MUSTER_WORKER_TENSORBOARD_EVENT_H_
