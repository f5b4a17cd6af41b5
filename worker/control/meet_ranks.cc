#include "worker/control/meet_ranks.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/status/status.h"
#include "worker/comm/gloo/gloo_communicator.h"
#include "worker/control/model_communicator.h"

namespace muster::control {
namespace {

// The number of other ranks that each rank tries. If all of them answer, the network counts as
// working.
constexpr int64_t kMostTried = 256;

std::string ReachKeyOf(int64_t rank) { return absl::StrCat("door/", rank); }

TellTrouble Tell(ControlStream& stream) {
  return [&stream](const std::string& trouble) {
    if (!trouble.empty()) spdlog::warn("{}", trouble);
    v1::WorkerHeartbeat heartbeat;
    heartbeat.set_trouble(trouble);
    stream.SetProgress(std::move(heartbeat));
  };
}

std::string NotReachedItself(const std::string& host) {
  return absl::StrCat("does not reach its own address ", host,
                      ": is its interface up (ip link set lo up)? Otherwise start the agent of "
                      "this node with `muster-agent --host ADDRESS`, the address at which other "
                      "nodes reach it");
}

// Checks that this rank reaches its own address. The store connects to itself first, and would wait
// long for an interface that is down.
absl::Status ReachOneself(ControlStream& stream, const std::string& host) {
  ASSIGN_OR_RETURN(const auto listener, ReachListener::Open(host));
  const auto tell = [&stream, &host](const std::string& trouble) {
    Tell(stream)(trouble.empty() ? "" : NotReachedItself(host));
  };
  const absl::Status reached = AwaitReachable({0, host, listener->port()}, tell,
                                              {.tell = absl::Seconds(1), .end = absl::Seconds(10)});
  if (reached.ok()) return reached;
  return train::WithCause(absl::FailedPreconditionError(NotReachedItself(host)),
                          train::Cause::kNodeFault);
}

// Returns the number of the job's communicators that are meshes of connections between all ranks.
int MeshesOf(const v1::JobSpec& spec) {
  const int of_model = spec.device() == v1::JobSpec::CUDA  ? 0
                       : spec.strategy().has_fsdp() ? 2
                                                    : 1;
  return 2 + of_model;
}

absl::StatusOr<Peer> AwaitPeer(comm::RendezvousStore& store, int64_t rank,
                               absl::Duration timeout) {
  ASSIGN_OR_RETURN(const std::string text,
                   store.Await(ReachKeyOf(rank), absl::ToChronoMilliseconds(timeout)));
  const size_t space = text.find(' ');
  uint32_t port = 0;
  if (space == std::string::npos || !absl::SimpleAtoi(text.substr(space + 1), &port)) {
    return absl::InternalError(absl::StrCat("rank ", rank, " gave the address '", text, "'"));
  }
  return Peer{rank, text.substr(0, space), static_cast<uint16_t>(port)};
}

}  // namespace

absl::StatusOr<std::unique_ptr<comm::RendezvousStore>> OpenStore(ControlStream& stream,
                                                                 int64_t rank,
                                                                 absl::Duration timeout) {
  const std::string& host = stream.welcome().host();
  const std::string& secret = stream.welcome().generation_secret();
  if (rank == 0) {
    RETURN_IF_ERROR(ReachOneself(stream, host));
    ASSIGN_OR_RETURN(auto store, comm::HostStore(host, secret));
    v1::WorkerReport report;
    report.mutable_rendezvous()->set_host(host);
    report.mutable_rendezvous()->set_port(store->port());
    stream.Report(std::move(report));
    return store;
  }
  ASSIGN_OR_RETURN(const v1::Rendezvous meeting, stream.WaitForRendezvous(timeout));
  RETURN_IF_ERROR(
      AwaitReachable({0, meeting.host(), static_cast<uint16_t>(meeting.port())}, Tell(stream),
                     {.end = std::min(timeout, Patience().end)}));
  return comm::ConnectStore(meeting.host(), static_cast<uint16_t>(meeting.port()),
                            absl::ToChronoMilliseconds(timeout), secret);
}

absl::StatusOr<std::unique_ptr<ReachListener>> ReachRanks(ControlStream& stream, int64_t rank,
                                                          absl::Duration timeout,
                                                          comm::RendezvousStore& store) {
  const v1::WorkerWelcome& welcome = stream.welcome();
  const auto world_size = static_cast<int64_t>(welcome.spec().world_size());
  RETURN_IF_ERROR(CheckOpenFiles(rank, world_size, MeshesOf(welcome.spec())));
  ASSIGN_OR_RETURN(auto listener, ReachListener::Open(welcome.host()));
  RETURN_IF_ERROR(store.Put(ReachKeyOf(rank), absl::StrCat(welcome.host(), " ", listener->port())));
  for (int64_t i = 1; i <= std::min(world_size - 1, kMostTried); ++i) {
    ASSIGN_OR_RETURN(const Peer peer, AwaitPeer(store, (rank + i) % world_size, timeout));
    RETURN_IF_ERROR(CheckFamilies(rank, welcome.host(), peer));
    RETURN_IF_ERROR(
        AwaitReachable(peer, Tell(stream), {.end = std::min(timeout, Patience().end)}));
  }
  return listener;
}

absl::StatusOr<Communicators> ConnectRanks(const v1::WorkerWelcome& welcome, int64_t rank,
                                           absl::Duration timeout, std::function<bool()> watched,
                                           std::unique_ptr<comm::RendezvousStore> store) {
  Communicators result;
  result.store = std::move(store);
  comm::GlooOptions options{.rank = static_cast<int>(rank),
                            .world_size = static_cast<int>(welcome.spec().world_size()),
                            .name = "control",
                            .connect_timeout = absl::ToChronoMilliseconds(timeout),
                            .timeout = absl::ToChronoMilliseconds(timeout),
                            .watched = std::move(watched),
                            .secret = welcome.generation_secret(),
                            .hostname = welcome.host()};
  ASSIGN_OR_RETURN(result.control, comm::CreateGlooCommunicator(options, *result.store));
  options.name = "files";
  ASSIGN_OR_RETURN(result.files, comm::CreateGlooCommunicator(options, *result.store));
  options.name = "gradients";
  ASSIGN_OR_RETURN(result.gradients, ConnectForModel(welcome.spec(), options, *result.store));
  if (welcome.spec().strategy().has_fsdp()) {
    options.name = "parameters";
    ASSIGN_OR_RETURN(result.parameters, ConnectForModel(welcome.spec(), options, *result.store));
  }
  return result;
}

train::FailureKind KindOfMeetingFailure(const absl::Status& error, bool hosting) {
  if (absl::IsFailedPrecondition(error)) return train::FailureKind::kPermanent;
  if (!hosting) return train::FailureKind::kConsequence;
  return absl::IsInvalidArgument(error) ? train::FailureKind::kPermanent
                                        : train::FailureKind::kTransient;
}

}  // namespace muster::control
