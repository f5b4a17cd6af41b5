// The workers of this node that have ended. An ended worker is reported on every new stream until
// the coordinator acknowledges it. Acknowledged ones are remembered for a while, so that a repeated
// StartWorker starts nothing. Pure.
#ifndef MUSTER_WORKER_AGENT_CORE_ENDED_WORKERS_H_
#define MUSTER_WORKER_AGENT_CORE_ENDED_WORKERS_H_

#include <cstddef>
#include <deque>
#include <map>

#include "worker/agent/core/attachment.h"
#include "worker/agent/core/effects.h"
#include "worker/agent/core/events.h"
#include "worker/agent/core/worker_record.h"

namespace muster::agent {

class EndedWorkers {
 public:
  // `remembered`: how many acknowledged exits are remembered.
  explicit EndedWorkers(size_t remembered) : remembered_(remembered) {}

  // `spooled`: the worker's reports wait on the disk, and its exit is told after them.
  void Add(EndedWorker worker, bool spooled, const Attachment& attachment, Effects& effects);
  void On(const ExitAcked& ack);
  void On(const SpoolTold& told, const Attachment& attachment, Effects& effects);
  // The coordinator has accepted this agent on a new stream: the reports that wait are sent.
  void On(const Welcomed&, Effects& effects) const;
  // Tells the exit of this worker again. False: it has not ended here, as far as is remembered.
  bool TellAgain(const WorkerId& worker, Effects& effects) const;
  // Adds those that are not acknowledged. For the coordinator, one with reports on the disk runs.
  void AddTo(SendHello* hello) const;
  bool AllAcked() const;

 private:
  struct Past {
    EndedWorker worker;
    bool acked = false;
    bool spooled = false;
  };

  const size_t remembered_;
  std::map<WorkerId, Past> past_;
  // The acknowledged ones of past_, oldest first: the first one is forgotten next.
  std::deque<WorkerId> acked_;
};

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_CORE_ENDED_WORKERS_H_
