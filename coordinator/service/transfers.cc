#include "coordinator/service/transfers.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/ids/ids.h"
#include "common/status/code_name.h"
#include "common/steady/now.h"
#include "coordinator/cluster/event.h"
#include "coordinator/limits/limits.h"
#include "coordinator/membership/refusal.h"
#include "coordinator/service/wire.h"

namespace muster::service {
namespace {

// The time between two checks of the transfers' time limits.
constexpr absl::Duration kLook = absl::Seconds(2);
// The most bytes of the reason of an agent's error.
constexpr size_t kLongestReason = 64;

absl::Status StatusOf(const v1::OperationError& failure) {
  const absl::StatusCode code = CodeFromName(failure.code());
  return Refuse(code == absl::StatusCode::kOk ? absl::StatusCode::kUnknown : code,
                failure.reason().substr(0, kLongestReason), failure.message());
}

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
  return agent->stream;
}

class Transfer::ClientEnd final : public ClientStream {
 public:
  explicit ClientEnd(std::shared_ptr<Transfer> transfer) : transfer_(std::move(transfer)) {}

  void OnWriteDone(bool ok) override {
    transfer_->Step([ok](TransferCore& core) { return core.Written(ok, SteadyNow()); });
  }
  void OnCancel() override {
    transfer_->Step([](TransferCore& core) { return core.ClientLeft(); });
  }
  void OnDone() override { delete this; }

 private:
  const std::shared_ptr<Transfer> transfer_;
};

class Transfer::AgentEnd final : public AgentStream {
 public:
  explicit AgentEnd(Transfers* transfers) : transfers_(transfers) {}

  void ReadNext() {
    piece_.Clear();
    StartRead(&piece_);
  }

  void OnReadDone(bool ok) override {
    std::shared_ptr<Transfer> transfer = Joined();
    if (!ok) {
      if (transfer == nullptr) {
        return Finish(ToWire(Refuse(absl::StatusCode::kCancelled, "FILE_EXPECTED",
                                    "the stream ended, or was not readable, before its first "
                                    "piece of a file")));
      }
      return transfer->Step([](TransferCore& core) { return core.NothingArrived(); });
    }
    if (transfer == nullptr) {
      transfer = transfers_->Find(piece_.transfer());
      if (transfer == nullptr || !transfer->Join(this)) {
        return Finish(ToWire(Refuse(absl::StatusCode::kNotFound, "TRANSFER_NOT_FOUND",
                                    "nobody waits for this file any more")));
      }
      absl::MutexLock lock(&mutex_);
      transfer_ = transfer;
    }
    transfer->Take(std::move(piece_));
  }
  // An agent's stream that has not joined a transfer ends with its read.
  void OnCancel() override {
    const std::shared_ptr<Transfer> transfer = Joined();
    if (transfer != nullptr) transfer->Step([](TransferCore& core) { return core.AgentLeft(); });
  }
  void OnDone() override { delete this; }

 private:
  std::shared_ptr<Transfer> Joined() {
    absl::MutexLock lock(&mutex_);
    return transfer_;
  }

  Transfers* const transfers_;
  v1::FilePiece piece_;
  absl::Mutex mutex_;
  std::shared_ptr<Transfer> transfer_ ABSL_GUARDED_BY(mutex_);
};

void Transfer::Fail(const absl::Status& why) {
  Step([&](TransferCore& core) { return core.End(why); });
}

bool Transfer::Begin(const std::string& id, const std::string& node) {
  absl::MutexLock lock(&mutex_);
  if (core_.ended()) return false;
  core_ = TransferCore(node, SteadyNow());
  id_ = id;
  return true;
}

bool Transfer::Join(AgentEnd* agent) {
  absl::MutexLock lock(&mutex_);
  if (core_.AgentCame(SteadyNow()).end_agent.has_value()) return false;
  agent_ = agent;
  return true;
}

void Transfer::Take(v1::FilePiece piece) {
  auto kind = TransferCore::Piece::kData;
  absl::Status failure;
  if (piece.has_failure()) {
    kind = TransferCore::Piece::kFailure;
    failure = StatusOf(piece.failure());
  } else if (!piece.hash().empty()) {
    kind = TransferCore::Piece::kLast;
  }
  piece.clear_transfer();
  Step([&](TransferCore& core) {
    const TransferCore::Actions actions = core.Arrived(kind, failure, SteadyNow());
    if (actions.write) piece_ = std::move(piece);
    return actions;
  });
}

// A stream is not ended during a write or a read, and no write or read begins after its end
// (TransferCore). So both streams exist when they are used without the lock.
void Transfer::Step(const std::function<TransferCore::Actions(TransferCore&)>& event) {
  TransferCore::Actions actions;
  ClientEnd* client = nullptr;
  AgentEnd* agent = nullptr;
  std::string ended;
  {
    absl::MutexLock lock(&mutex_);
    actions = event(core_);
    client = client_;
    agent = agent_;
    if (core_.ended()) ended = std::exchange(id_, "");
  }
  const auto self = shared_from_this();
  if (!ended.empty()) transfers_->Remove(ended);
  if (actions.write) client->StartWrite(&piece_);
  if (actions.read) agent->ReadNext();
  if (actions.end_agent.has_value()) agent->Finish(ToWire(*actions.end_agent));
  if (actions.end_client.has_value()) client->Finish(ToWire(*actions.end_client));
}

Transfers::Transfers() : watcher_([this] { Watch(); }) {}

Transfers::~Transfers() {
  {
    absl::MutexLock lock(&mutex_);
    stop_ = true;
    stopped_.Changed();
  }
  watcher_.join();
}

std::pair<Transfer::ClientStream*, std::shared_ptr<Transfer>> Transfers::AcceptClient() {
  std::shared_ptr<Transfer> transfer(new Transfer(this));
  auto* client = new Transfer::ClientEnd(transfer);
  absl::MutexLock lock(&transfer->mutex_);
  transfer->client_ = client;
  return {client, transfer};
}

absl::StatusOr<std::string> Transfers::Begin(const std::shared_ptr<Transfer>& transfer,
                                             const std::string& node) {
  const std::string id = NewUuid();
  {
    absl::MutexLock lock(&mutex_);
    if (!ended_.ok()) return ended_;
    if (under_way_.size() >= kLimits.downloads) {
      return Refuse(absl::StatusCode::kResourceExhausted, "TOO_MANY_DOWNLOADS",
                    absl::StrCat(under_way_.size(),
                                 " downloads are under way, as many as allowed; try again later"),
                    LimitOf(kLimits.downloads));
    }
    under_way_[id] = transfer;
  }
  if (transfer->Begin(id, node)) return id;
  Remove(id);
  return ClientGone();
}

Transfer::AgentStream* Transfers::AcceptAgent() {
  auto* agent = new Transfer::AgentEnd(this);
  agent->ReadNext();
  return agent;
}

void Transfers::EndAll(const absl::Status& why) {
  std::map<std::string, std::shared_ptr<Transfer>> all;
  {
    absl::MutexLock lock(&mutex_);
    ended_ = why;
    all.swap(under_way_);
  }
  for (const auto& [id, transfer] : all) transfer->Fail(why);
}

std::shared_ptr<Transfer> Transfers::Find(const std::string& id) {
  absl::MutexLock lock(&mutex_);
  const auto found = under_way_.find(id);
  return found == under_way_.end() ? nullptr : found->second;
}

void Transfers::Remove(const std::string& id) {
  absl::MutexLock lock(&mutex_);
  under_way_.erase(id);
}

void Transfers::Watch() {
  while (true) {
    std::vector<std::shared_ptr<Transfer>> all;
    {
      absl::MutexLock lock(&mutex_);
      const auto stopped = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stop_; };
      if (stopped_.Await(mutex_, kLook, stopped)) return;
      for (const auto& [id, transfer] : under_way_) all.push_back(transfer);
    }
    for (const auto& transfer : all) {
      transfer->Step([](TransferCore& core) { return core.Ticked(SteadyNow()); });
    }
  }
}

}  // namespace muster::service
