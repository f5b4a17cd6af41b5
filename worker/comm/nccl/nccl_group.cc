#include "worker/comm/nccl/nccl_group.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/status/status.h"
#include "common/steady/now.h"

namespace muster::comm {
namespace {

// The time between two questions to NCCL whether a call is done.
constexpr absl::Duration kPoll = absl::Microseconds(20);

absl::Status NcclError(const char* call, ncclResult_t result, ncclComm_t comm) {
  std::string text = absl::StrCat("NCCL: ", call, ": ", ncclGetErrorString(result));
  if (const char* more = ncclGetLastError(comm); more != nullptr && *more != '\0') {
    absl::StrAppend(&text, " (", more, ")");
  }
  return absl::UnavailableError(text);
}

}  // namespace

absl::StatusOr<std::string> NcclGroup::NewId() {
  ncclUniqueId id;
  if (const ncclResult_t result = ncclGetUniqueId(&id); result != ncclSuccess) {
    return NcclError("ncclGetUniqueId", result, nullptr);
  }
  return std::string(id.internal, sizeof(id.internal));
}

absl::StatusOr<std::unique_ptr<NcclGroup>> NcclGroup::Create(const std::string& unique_id, int rank,
                                                             int world_size,
                                                             std::chrono::milliseconds timeout) {
  ncclUniqueId id;
  if (unique_id.size() != sizeof(id.internal)) {
    return absl::UnavailableError(absl::StrCat("NCCL: the id of the ranks has ", unique_id.size(),
                                               " bytes; expected ", sizeof(id.internal)));
  }
  std::memcpy(id.internal, unique_id.data(), sizeof(id.internal));
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t comm = nullptr;
  const ncclResult_t result = ncclCommInitRankConfig(&comm, world_size, id, rank, &config);
  if (comm == nullptr) return NcclError("ncclCommInitRank", result, nullptr);
  auto group = std::unique_ptr<NcclGroup>(new NcclGroup(comm));
  absl::MutexLock lock(&group->mutex_);
  RETURN_IF_ERROR(
      group->Settle("ncclCommInitRank", result, SteadyNow() + absl::FromChrono(timeout)));
  return group;
}

NcclGroup::~NcclGroup() { Abort(); }

// Waits until NCCL has done the call. Releases the lock meanwhile, so that Abort can end the wait.
absl::Status NcclGroup::Settle(const char* call, ncclResult_t result, absl::Time end) {
  while (result == ncclInProgress) {
    mutex_.Unlock();
    absl::SleepFor(kPoll);
    mutex_.Lock();
    if (comm_ == nullptr) return absl::UnavailableError("NCCL: the communicator was aborted");
    if (SteadyNow() >= end) {
      return absl::DeadlineExceededError(absl::StrCat("NCCL: ", call, " did not end in time"));
    }
    const ncclResult_t asked = ncclCommGetAsyncError(comm_, &result);
    if (asked != ncclSuccess) result = asked;
  }
  if (result != ncclSuccess) return NcclError(call, result, comm_);
  return absl::OkStatus();
}

absl::Status NcclGroup::Run(const std::function<ncclResult_t(ncclComm_t)>& calls,
                            std::chrono::milliseconds timeout) {
  absl::MutexLock lock(&mutex_);
  if (comm_ == nullptr) return absl::UnavailableError("NCCL: the communicator was aborted");
  const auto accepted = [](ncclResult_t result) {
    return result == ncclSuccess || result == ncclInProgress;
  };
  ncclResult_t result = ncclGroupStart();
  if (!accepted(result)) return NcclError("ncclGroupStart", result, comm_);
  const ncclResult_t called = calls(comm_);
  result = ncclGroupEnd();
  if (!accepted(called)) return NcclError("a call of the group", called, comm_);
  return Settle("ncclGroupEnd", result, SteadyNow() + absl::FromChrono(timeout));
}

absl::Status NcclGroup::Finish(std::chrono::milliseconds timeout) {
  absl::MutexLock lock(&mutex_);
  if (comm_ == nullptr) return absl::OkStatus();
  RETURN_IF_ERROR(
      Settle("ncclCommFinalize", ncclCommFinalize(comm_), SteadyNow() + absl::FromChrono(timeout)));
  const ncclResult_t result = ncclCommDestroy(std::exchange(comm_, nullptr));
  return result == ncclSuccess ? absl::OkStatus() : NcclError("ncclCommDestroy", result, nullptr);
}

absl::Status NcclGroup::Poll() {
  absl::MutexLock lock(&mutex_);
  if (comm_ == nullptr) return absl::OkStatus();
  ncclResult_t found = ncclSuccess;
  const ncclResult_t result = ncclCommGetAsyncError(comm_, &found);
  if (result != ncclSuccess) return NcclError("ncclCommGetAsyncError", result, comm_);
  if (found != ncclSuccess && found != ncclInProgress) {
    return NcclError("an operation", found, comm_);
  }
  return absl::OkStatus();
}

void NcclGroup::Abort() {
  absl::MutexLock lock(&mutex_);
  if (comm_ != nullptr) ncclCommAbort(std::exchange(comm_, nullptr));
}

}  // namespace muster::comm
