// The control streams of agents and workers. Actors on the engine's thread: messages are applied to
// the cluster in the order in which they come, orders leave in the order in which they were given.
#ifndef MUSTER_COORDINATOR_SERVICE_SESSION_H_
#define MUSTER_COORDINATOR_SERVICE_SESSION_H_

#include <grpcpp/support/server_callback.h>

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "coordinator/cluster/effect.h"
#include "coordinator/service/engine.h"
#include "coordinator/service/wire.h"

namespace muster::service {

// Where orders go. Only on the engine's thread.
class Session {
 public:
  virtual ~Session() = default;
  virtual void Send(const cluster::AgentOrder&) {}
  virtual void Send(const cluster::WorkerOrder&) {}
  virtual void End(const absl::Status& why) = 0;
};

// The open streams by their numbers. Only on the engine's thread.
class Sessions {
 public:
  // Null when it has ended.
  Session* Find(cluster::SessionId id) const;
  void Add(cluster::SessionId id, Session* session) { sessions_[id] = session; }
  void Remove(cluster::SessionId id) { sessions_.erase(id); }
  // Ends all, and those that come later at once.
  void EndAll(const absl::Status& why);
  const absl::Status& ended() const { return ended_; }

 private:
  std::map<cluster::SessionId, Session*> sessions_;
  absl::Status ended_;
};

// One stream of In from a peer, Out to it.
template <typename In, typename Out>
class SessionStream : public grpc::ServerBidiReactor<In, Out>,
                      public Session,
                      public std::enable_shared_from_this<SessionStream<In, Out>> {
 public:
  SessionStream(Engine* engine, Sessions* sessions, cluster::SessionId id)
      : engine_(engine), sessions_(sessions), id_(id) {}

  // Called once, right after construction.
  void Begin() {
    self_ = this->shared_from_this();
    engine_->Post([self = self_](cluster::Cluster&,
                                 absl::Time) { self->sessions_->Add(self->id_, self.get()); },
                  [self = self_](const absl::Status& committed) {
                    if (!committed.ok()) return self->End(committed);
                    if (!self->sessions_->ended().ok()) self->End(self->sessions_->ended());
                  });
    this->StartRead(&incoming_);
  }

  void End(const absl::Status& why) override {
    if (ended_) return;
    ended_ = true;
    sessions_->Remove(id_);
    // What was given out before goes first: an acknowledgement must not be lost to the end that
    // follows it.
    last_word_ = why;
    if (!writing_) this->Finish(ToWire(why));
  }

  // ---- Called by gRPC, on its threads.
  void OnReadDone(bool ok) override {
    if (!ok) return Broken();
    auto message = std::make_shared<In>(std::move(incoming_));
    incoming_.Clear();
    // The engine resumes reading when the backlog has shrunk.
    const bool full = backlog_.fetch_add(1) + 1 == kMaxBacklog;
    engine_->Post(
        [self = self_, message](cluster::Cluster& cluster, absl::Time now) {
          if (!self->ended_ && self->refused_.ok()) {
            self->refused_ = self->Take(*message, cluster, now);
          }
        },
        [self = self_](const absl::Status& committed) { self->Taken(committed); });
    if (!full) this->StartRead(&incoming_);
  }
  void OnWriteDone(bool ok) override {
    engine_->Post(nullptr, [self = self_, ok](const absl::Status&) { self->Written(ok); });
  }
  void OnCancel() override { Broken(); }
  void OnDone() override { self_.reset(); }

 protected:
  // One message. After an error the stream ends with it.
  virtual absl::Status Take(const In& message, cluster::Cluster& cluster, absl::Time now) = 0;

  void Put(Out message) {
    if (ended_) return;
    if (outbox_.size() >= kMaxOutbox) {
      return End(absl::ResourceExhaustedError("the peer does not read its stream"));
    }
    outbox_.push_back(std::move(message));
    WriteNext();
  }
  cluster::SessionId id() const { return id_; }

 private:
  static constexpr int kMaxBacklog = 256;
  static constexpr size_t kMaxOutbox = 10000;

  void Taken(const absl::Status& committed) {
    const bool was_full = backlog_.fetch_sub(1) == kMaxBacklog;
    if (!committed.ok()) return End(committed);
    if (!refused_.ok()) return End(refused_);
    if (was_full && !ended_) this->StartRead(&incoming_);
  }

  void Broken() {
    engine_->Post([self = self_](cluster::Cluster& cluster,
                                 absl::Time now) { cluster.Detached(self->id_, now); },
                  [self = self_](const absl::Status& committed) { self->End(committed); });
  }

  void WriteNext() {
    if (writing_ || outbox_.empty()) return;
    writing_ = true;
    outgoing_ = std::move(outbox_.front());
    outbox_.pop_front();
    this->StartWrite(&outgoing_);
  }

  void Written(bool ok) {
    writing_ = false;
    if (!ok) outbox_.clear();
    WriteNext();
    if (!writing_ && ended_) this->Finish(ToWire(last_word_));
  }

  Engine* const engine_;
  Sessions* const sessions_;
  const cluster::SessionId id_;
  // Keeps this alive until gRPC is done with it.
  std::shared_ptr<SessionStream> self_;

  // Read by gRPC between StartRead and OnReadDone.
  In incoming_;
  // Messages that the engine has yet to take.
  std::atomic<int> backlog_ = 0;

  // ---- Of the engine's thread.
  absl::Status refused_;
  std::deque<Out> outbox_;
  Out outgoing_;
  bool writing_ = false;
  bool ended_ = false;
  absl::Status last_word_;
};

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_SESSION_H_
