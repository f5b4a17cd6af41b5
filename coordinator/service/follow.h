// Server streams that follow a job: its snapshots, its log, or its steps. Every member is used on
// the engine's thread only, except in the functions that gRPC calls.
#ifndef MUSTER_COORDINATOR_SERVICE_FOLLOW_H_
#define MUSTER_COORDINATOR_SERVICE_FOLLOW_H_

#include <grpcpp/support/server_callback.h>

#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "coordinator/membership/refusal.h"
#include "coordinator/service/engine.h"
#include "coordinator/service/permit.h"
#include "coordinator/service/wire.h"

namespace muster::service {

// An object that is told when a job has changed.
class Follower {
 public:
  virtual ~Follower() = default;
  virtual void Poke() = 0;
  virtual void End(const absl::Status& why) = 0;
  // Returns OK, or why the caller may not follow any more.
  virtual absl::Status MayGoOn() const = 0;
  // Handles the deletion of the job. The stream ends with OK if everything was sent.
  virtual void JobDeleted() = 0;
};

// Returns the host of a connection from grpc::ServerContextBase::peer(), without the port.
std::string HostOf(const std::string& peer);

// The followers of each job. Used on the engine's thread only.
class Followers {
 public:
  // Adds a follower. `host`: the host of the caller. RESOURCE_EXHAUSTED TOO_MANY_FOLLOWERS if the
  // job, the host, or all jobs have too many.
  absl::Status Add(const std::string& job, const std::string& host, Follower* follower);
  void Remove(const std::string& job, Follower* follower);
  void Poke(const std::string& job);
  void JobDeleted(const std::string& job);
  // Ends all streams, and at once every stream that is added later.
  void EndAll(const absl::Status& why);
  // Ends the streams whose callers may not follow any more.
  void EndRefused();
  const absl::Status& ended() const { return ended_; }

 private:
  std::map<std::string, std::set<Follower*>> followers_;
  // The host of each follower, and the number of followers of each host.
  std::map<Follower*, std::string> hosts_;
  std::map<std::string, size_t> of_host_;
  absl::Status ended_;
};

// The caller of a stream: grpc::ServerContextBase::peer(), and whether the caller may still follow.
struct Follows {
  std::string peer;
  Permit permit = [] { return absl::OkStatus(); };
};

// A call that follows one job: a FollowStream, or a wait for an operation (operation_service.cc).
class JobFollower : public Follower {
 public:
  absl::Status MayGoOn() const override { return permit_(); }

 protected:
  JobFollower(Engine* engine, Followers* followers, std::string job, Follows by)
      : engine_(engine),
        followers_(followers),
        job_(std::move(job)),
        host_(HostOf(by.peer)),
        permit_(std::move(by.permit)) {}

  // Null if the job was deleted.
  const jobs::Job* job() const { return engine_->cluster().Find(job_); }
  const std::string& job_id() const { return job_; }
  Engine& engine() { return *engine_; }

  // Begins to follow. False if the call has ended, or ends now. `committed`: from Engine::Read.
  bool Enter(const absl::Status& committed) {
    // The caller has already given up, so this object may be destroyed soon.
    if (ended_) return false;
    absl::Status refused = committed;
    if (refused.ok()) refused = followers_->ended();
    if (refused.ok() && job() == nullptr) refused = NoSuchJob(job_);
    if (refused.ok()) refused = followers_->Add(job_, host_, this);
    if (!refused.ok()) End(refused);
    return refused.ok();
  }
  // Stops following. False if the call did not follow.
  bool Leave() {
    if (std::exchange(ended_, true)) return false;
    followers_->Remove(job_, this);
    return true;
  }
  bool ended() const { return ended_; }

 private:
  Engine* const engine_;
  Followers* const followers_;
  const std::string job_;
  const std::string host_;
  const Permit permit_;
  bool ended_ = false;
};

// A stream of T about one job. Subclasses give the items.
template <typename T>
class FollowStream : public grpc::ServerWriteReactor<T>,
                     public JobFollower,
                     public std::enable_shared_from_this<FollowStream<T>> {
 public:
  FollowStream(Engine* engine, Followers* followers, std::string job, Follows by)
      : JobFollower(engine, followers, std::move(job), std::move(by)) {}

  // Starts the stream. Called once, right after construction.
  void Begin() {
    self_ = this->shared_from_this();
    engine().Read([self = self_](const absl::Status& committed) {
      if (self->Enter(committed)) self->Poke();
    });
  }

  void Poke() override {
    if (ended()) return;
    if (writing_) {
      if (!deleted_ && job() != nullptr) Remember();
      return;
    }
    if (deleted_ || job() == nullptr) return SendRest();
    const absl::StatusOr<bool> next = Next(&item_);
    if (!next.ok()) return End(next.status());
    if (*next) {
      complete_ = Over() && IsLast();
      writing_ = true;
      this->StartWrite(&item_);
    } else if (Over()) {
      End(absl::OkStatus());
    }
  }

  void End(const absl::Status& why) override {
    if (!Leave()) return;
    end_status_ = why;
    if (!writing_) this->Finish(ToWire(why, job_id()));
  }

  void JobDeleted() override {
    if (ended()) return;
    deleted_ = true;
    if (!writing_) SendRest();
  }

  // ---- Called by gRPC, on its threads.
  void OnWriteDone(bool ok) override {
    engine().Aside([self = self_, ok](cluster::Cluster&, absl::Time) {
      self->writing_ = false;
      if (self->ended()) return self->Finish(ToWire(self->end_status_, self->job_id()));
      if (!ok) return self->End(ClientGone());
      // The next item must be committed, so Post waits for the commit.
      self->engine().Post(nullptr, [self](const absl::Status& committed) {
        committed.ok() ? self->Poke() : self->End(committed);
      });
    });
  }
  void OnCancel() override {
    engine().Aside([self = self_](cluster::Cluster&, absl::Time) { self->End(ClientGone()); });
  }
  void OnDone() override { self_.reset(); }

 protected:
  // Fills in the next item; false if there is none yet. job() is never null in Next and Over.
  virtual absl::StatusOr<bool> Next(T* item) = 0;
  // Returns whether no further items will be added.
  virtual bool Over() = 0;
  // Returns, for a stream that is over, whether the item from Next is the last item.
  virtual bool IsLast() = 0;
  // Keeps the items that are left, in case the job is deleted before the current write is done.
  // Called when the job changed while an item is being written.
  virtual void Remember() {}
  // Fills in, for a deleted job, the item that Remember kept. False unless this item is everything
  // left to send.
  virtual bool Rest(T*) { return false; }

 private:
  // Sends what is left of a deleted job, and ends the stream.
  void SendRest() {
    if (!complete_ && Rest(&item_)) {
      complete_ = writing_ = true;
      this->StartWrite(&item_);
      return;
    }
    End(complete_ ? absl::OkStatus()
                  : Refuse(absl::StatusCode::kNotFound, "JOB_NOT_FOUND",
                           "job '" + job_id() + "' was deleted before everything was sent"));
  }

  // A reference to this object until gRPC is done with it.
  std::shared_ptr<FollowStream> self_;

  T item_;
  bool writing_ = false;
  // Whether the item last given to gRPC is the last item.
  bool complete_ = false;
  bool deleted_ = false;
  absl::Status end_status_;
};

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_FOLLOW_H_
