// Conversions between the agent's records and the messages of muster.v1.AgentService.
#ifndef MUSTER_WORKER_AGENT_WIRE_H_
#define MUSTER_WORKER_AGENT_WIRE_H_

#include <cstddef>
#include <optional>

#include "proto/muster/v1/agent_service.pb.h"
#include "worker/agent/core/events.h"
#include "worker/agent/core/worker_record.h"
#include "worker/agent/gpus.h"
#include "worker/agent/log_queue.h"

namespace muster::agent {

v1::WorkerIdentity ToWire(const WorkerId& worker);
v1::Gpu ToWire(const Gpu& gpu);
WorkerId FromWire(const v1::WorkerIdentity& wire);
v1::WorkerExit ToWire(const EndedWorker& worker);

v1::AgentMessage ToMessage(const SendHeartbeat& heartbeat);
v1::AgentMessage ToMessage(const SendDraining& draining);
v1::AgentMessage ToMessage(const SendQuarantine& quarantine);
v1::AgentMessage ToMessage(const SendStarted& started);
v1::AgentMessage ToMessage(const SendExit& exit);
v1::AgentMessage ToMessage(LogQueue::Batch batch);
// Returns a message with the core's data only. The caller adds the agent's identity and address.
// The last lines of all ended workers together have at most kHelloTailBytes, because a coordinator
// takes no Hello above 2 MiB. Lines beyond this limit are left out.
inline constexpr size_t kHelloTailBytes = 1 << 20;
v1::AgentMessage ToMessage(const SendHello& hello);

// Returns the event; nullopt: the directive is no event of the core (SpooledReportsAck), or is a
// newer coordinator's and unknown here.
std::optional<Event> ToEvent(const v1::AgentDirective& directive);

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_WIRE_H_
