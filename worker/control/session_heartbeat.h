// The session's part of a worker's heartbeats: progress, collectives that have begun and ended, and
// written data. The session runs in another thread. This object also knows whether a heartbeat was
// sent to the coordinator lately.
#ifndef MUSTER_WORKER_CONTROL_SESSION_HEARTBEAT_H_
#define MUSTER_WORKER_CONTROL_SESSION_HEARTBEAT_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>

#include "absl/time/time.h"
#include "common/activity/activity.h"
#include "proto/muster/v1/job.pb.h"
#include "proto/muster/v1/worker_service.pb.h"
#include "worker/checkpoint/writing.h"
#include "worker/comm/flight/flight_recorder.h"
#include "worker/memory/counters.h"

namespace muster::control {

// Threading: thread-safe.
class SessionHeartbeat {
 public:
  using Clock = std::function<std::chrono::steady_clock::time_point()>;
  explicit SessionHeartbeat(Clock now = std::chrono::steady_clock::now);

  // The counter of the session's progress, and the recorder of its communicators.
  activity::Activity* activity() { return &activity_; }
  comm::FlightRecorder* flight() { return &flight_; }
  // The progress of the file that the session writes.
  checkpoint::Writing* writing() { return &writing_; }

  // Adds the session's part to a heartbeat that is about to be sent.
  void AddTo(v1::WorkerHeartbeat* heartbeat);

  // Sets how long after a heartbeat the coordinator counts as watching. Zero before the first call.
  void WatchedFor(absl::Duration lease);
  // True if a heartbeat was sent lately. Then the coordinator itself decides which rank hangs.
  bool Watched() const;

 private:
  const Clock now_;
  activity::Activity activity_;
  comm::FlightRecorder flight_;
  checkpoint::Writing writing_;
  std::atomic<std::chrono::steady_clock::time_point> told_{std::chrono::steady_clock::time_point()};
  std::atomic<std::chrono::nanoseconds> lease_{std::chrono::nanoseconds(0)};
};

// Returns the memory of this process for a heartbeat (docs/reference/memory.md).
//
// usage: of the job's device. reserved_bytes: of a GPU; 0 on the CPU.
v1::RankMemory MemoryReport(const memory::Usage& usage, uint64_t resident_bytes,
                            uint64_t reserved_bytes = 0);

}  // namespace muster::control

#endif  // MUSTER_WORKER_CONTROL_SESSION_HEARTBEAT_H_
