#include "coordinator/service/download.h"

#include "absl/strings/str_cat.h"
#include "coordinator/cluster/event.h"
#include "coordinator/membership/refusal.h"
#include "coordinator/service/wire.h"

namespace muster::service {
namespace {

absl::Status Precondition(const std::string& reason, const std::string& message) {
  return Refuse(absl::StatusCode::kFailedPrecondition, reason, message);
}

}  // namespace

absl::StatusOr<DownloadFile> DownloadOf(const jobs::Job& job, uint64_t number) {
  const std::string name = OperationName(job.id, number);
  const commands::Command* command = job.commands.Find(number);
  if (command == nullptr) {
    return Refuse(absl::StatusCode::kNotFound, "OPERATION_NOT_FOUND",
                  absl::StrCat("there is no operation '", name, "'"), {{"operation", name}});
  }
  v1::Command contents;
  contents.ParseFromString(command->contents);
  if (!contents.gather_optimizer_state().file().download()) {
    return Precondition(
        "NO_DOWNLOAD",
        absl::StrCat("operation '", name,
                     "' writes no file to download; `muster gather-optimizer-state JOB --out FILE "
                     "--download` does"));
  }
  if (!command->outcome.has_value()) {
    return Precondition("OPERATION_NOT_DONE", absl::StrCat("operation '", name,
                                                           "' is not done: its file is not there "
                                                           "yet"));
  }
  if (command->outcome->code != absl::StatusCode::kOk) {
    return Precondition("OPERATION_FAILED",
                        absl::StrCat("operation '", name, "' failed (", command->outcome->message,
                                     "): there is no file"));
  }
  v1::OperationResult result;
  result.ParseFromString(command->outcome->result);
  const v1::GatheredOptimizerState& gathered = result.gathered_optimizer_state();
  return DownloadFile{.node = gathered.node(), .bytes = gathered.bytes()};
}

absl::StatusOr<membership::PeerStreamId> AgentFor(const DownloadFile& file,
                                                  const membership::Membership& membership) {
  const membership::Agent* agent = membership.agents().Find(file.node);
  if (agent == nullptr || !agent->attached()) {
    return Refuse(absl::StatusCode::kUnavailable, "NODE_NOT_ATTACHED",
                  absl::StrCat("the file is on node '", file.node,
                               "', whose agent is not attached; `muster nodes` shows it"));
  }
  return agent->session;
}

}  // namespace muster::service
