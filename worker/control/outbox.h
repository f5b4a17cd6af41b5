// The worker's reports that the coordinator has not made durable yet: numbered from 1, sent in
// order, kept until acknowledged, sent again after a reconnect. Pure; the stream guards it.
#ifndef MUSTER_WORKER_CONTROL_OUTBOX_H_
#define MUSTER_WORKER_CONTROL_OUTBOX_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "proto/muster/v1/worker_service.pb.h"

namespace muster::control {

class Outbox {
 public:
  // Numbers the report and keeps it.
  void Add(v1::WorkerReport report);

  // The next report to send on this connection; none if all were sent.
  std::optional<v1::WorkerReport> Next();

  // The coordinator holds everything up to `sequence`.
  void Acknowledge(uint64_t sequence);

  // There is a new connection, on which the coordinator said that it holds everything up to
  // `acknowledged`: the later reports are sent again.
  void Rewind(uint64_t acknowledged);

  // The kept reports after `sequence`, serialized, in order.
  std::vector<std::string> After(uint64_t sequence) const;
  // Empties every second of the kept reports of a step's metrics; the empty reports stay because of
  // their numbers. False: there is nothing to drop.
  bool Thin();
  // Roughly the size of the kept reports, in bytes.
  size_t bytes() const { return bytes_; }
  // The newest number given to a report.
  uint64_t last() const { return last_; }
  // The coordinator holds all reports up to this number.
  uint64_t acknowledged() const { return last_ - kept_.size(); }

  bool HasNext() const { return next_ <= last_; }
  bool empty() const { return kept_.empty(); }

 private:
  std::deque<v1::WorkerReport> kept_;  // (acknowledged, last_]
  size_t bytes_ = 0;
  uint64_t last_ = 0;  // newest number given
  uint64_t next_ = 1;  // next to be sent
};

}  // namespace muster::control

#endif  // MUSTER_WORKER_CONTROL_OUTBOX_H_
