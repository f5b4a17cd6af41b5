#include "worker/train/session/session.h"

#include <ATen/Parallel.h>

#include <utility>

#include "common/status/status.h"
#include "worker/train/ranks/guarded.h"
#include "worker/train/session/agreed.h"
#include "worker/train/session/loaded.h"
#include "worker/train/session/opened.h"
#include "worker/train/session/running.h"

namespace muster::train {
namespace {

absl::StatusOr<std::unique_ptr<Session>> SetUp(const Identity& identity, const Job& job,
                                               const SessionParts& parts) {
  ASSIGN_OR_RETURN(auto agreed, Agree(std::make_unique<Opened>(identity, job, parts)));
  ASSIGN_OR_RETURN(auto loaded, Load(std::move(agreed)));
  auto running = std::make_unique<Running>(std::move(loaded));
  RETURN_IF_ERROR(running->Begin());
  return std::make_unique<Session>(std::move(running));
}

}  // namespace

Session::Session(std::unique_ptr<Running> running) : running_(std::move(running)) {}
Session::~Session() = default;

absl::StatusOr<SessionEnd> Session::Run() { return running_->Run(); }

absl::StatusOr<std::unique_ptr<Session>> Session::Create(const Identity& identity, const Job& job,
                                                         const SessionParts& parts) {
  at::set_num_threads(job.numerics.threads);  // for this thread, which runs the session
  auto session = Guarded("set-up", [&] { return SetUp(identity, job, parts); });
  // A job with a checkpoint has read all its files before. They are missing only on this node.
  const absl::Status& built = session.status();
  const bool gone = absl::IsNotFound(built) || absl::IsPermissionDenied(built);
  if (parts.checkpoints.any() && gone && CauseOf(built) == Cause::kNone) {
    return WithCause(
        Annotate(built,
                 "a file that the job could read before is missing; is the file system mounted on "
                 "this node?"),
        Cause::kNodeFault);
  }
  return session;
}

}  // namespace muster::train
