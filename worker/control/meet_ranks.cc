#include "worker/control/meet_ranks.h"

#include <utility>

#include "common/status/status.h"
#include "worker/comm/gloo/gloo_communicator.h"
#include "worker/control/model_communicator.h"

namespace muster::control {

absl::StatusOr<std::unique_ptr<comm::RendezvousStore>> OpenStore(ControlStream& stream,
                                                                 int64_t rank,
                                                                 absl::Duration timeout) {
  const std::string& host = stream.welcome().host();
  const std::string& secret = stream.welcome().generation_secret();
  if (rank == 0) {
    ASSIGN_OR_RETURN(auto store, comm::HostStore(host, secret));
    v1::WorkerReport report;
    report.mutable_rendezvous()->set_host(host);
    report.mutable_rendezvous()->set_port(store->port());
    stream.Report(std::move(report));
    return store;
  }
  ASSIGN_OR_RETURN(const v1::Rendezvous meeting, stream.WaitForRendezvous(timeout));
  return comm::ConnectStore(meeting.host(), static_cast<uint16_t>(meeting.port()),
                            absl::ToChronoMilliseconds(timeout), secret);
}

absl::StatusOr<Communicators> ConnectRanks(const v1::WorkerWelcome& welcome, int64_t rank,
                                           absl::Duration timeout, std::function<bool()> watched,
                                           std::unique_ptr<comm::RendezvousStore> store) {
  Communicators result{.store = std::move(store),
                       .control = nullptr,
                       .gradients = nullptr,
                       .parameters = nullptr,
                       .files = nullptr};
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
  if (!hosting) return train::FailureKind::kConsequence;
  return absl::IsInvalidArgument(error) ? train::FailureKind::kPermanent
                                        : train::FailureKind::kTransient;
}

}  // namespace muster::control
