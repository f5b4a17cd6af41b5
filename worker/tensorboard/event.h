// The records of an event file, as TensorBoard reads them (docs/tensorboard.md). Pure.
#ifndef MUSTER_WORKER_TENSORBOARD_EVENT_H_
#define MUSTER_WORKER_TENSORBOARD_EVENT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "worker/tensorboard/entry.h"

namespace muster::tensorboard {

// The first record of a file.
std::string VersionRecord(double wall_time);
// A reader forgets everything of this step and of later ones that it has read so far.
std::string StartRecord(int64_t step, double wall_time);
// One record for entries that follow each other with the same step and time. A number is a tensor
// of a float32, because TensorBoard's fast reader (tensorboard-data-server) shows no other type;
// beside it, in the same tensor, is the float64.
std::string EntryRecords(const std::vector<Entry>& entries);

// What the data of a record say.
struct ParsedEvent {
  std::optional<int64_t> start;  // StartRecord
  std::vector<Entry> entries;    // those that EntryRecords can write; others are left out
};
// Nothing: they are no event.
std::optional<ParsedEvent> ParseEvent(const std::string& data);

}  // namespace muster::tensorboard

#endif  // MUSTER_WORKER_TENSORBOARD_EVENT_H_
