// Events as a file that chrome://tracing and ui.perfetto.dev open: the Trace Event Format (JSON),
// "Trace Event Format", Google, 2016.
#ifndef MUSTER_WORKER_TRACE_CHROME_TRACE_H_
#define MUSTER_WORKER_TRACE_CHROME_TRACE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "worker/trace/recorder.h"

namespace muster::trace {

// Returns one rank's part of a file: a process "rank R" with a line for each lane. Collectives,
// which overlap, are asynchronous events.
std::string ChromeEvents(int64_t rank, const std::vector<Event>& events);

// Returns the file with the ranks' parts.
std::string ChromeTrace(const std::vector<std::string>& parts);

}  // namespace muster::trace

#endif  // MUSTER_WORKER_TRACE_CHROME_TRACE_H_
