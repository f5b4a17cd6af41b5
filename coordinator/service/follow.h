// Server streams that follow a job: its snapshots, its log, or its steps. They work on the engine's
// thread: every member is used only there, except in the functions that gRPC calls.
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

// Something that is told when a job has changed.
class Follower {
 public:
  virtual ~Follower() = default;
  virtual void Poke() = 0;
  virtual void End(const absl::Status& why) = 0;
  // OK, or why its caller may not follow any more.
  virtual absl::Status MayGoOn() const = 0;
  // The job was deleted. The stream ends with OK if everything was sent.
  virtual void JobDeleted() = 0;
};

// The host of a connection: what grpc::ServerContextBase::peer() gives, without the port.
std::string HostOf(const std::string& peer);

// Who follows which job. Only on the engine's thread.
class Followers {
 public:
  // `host`: where the call comes from. RESOURCE_EXHAUSTED TOO_MANY_FOLLOWERS: of the job, of the
  // host, or of all jobs.
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
  // The host of each, and how many each host has.
  std::map<Follower*, std::string> hosts_;
  std::map<std::string, size_t> of_host_;
  absl::Status ended_;
};

// Who follows: grpc::ServerContextBase::peer(), and whether he still may.
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

  // Null if it was deleted.
  const jobs::Job* job() const { return engine_->cluster().Find(job_); }
  const std::string& job_id() const { return job_; }
  Engine& engine() { return *engine_; }

  // Begins to follow. False: the call has ended, or ends now. `committed`: of Engine::Read.
  bool Enter(const absl::Status& committed) {
    // The caller has given up before: this object may be destroyed soon.
    if (ended_) return false;
    absl::Status refused = committed;
    if (refused.ok()) refused = followers_->ended();
    if (refused.ok() && job() == nullptr) refused = NoSuchJob(job_);
    if (refused.ok()) refused = followers_->Add(job_, host_, this);
    if (!refused.ok()) End(refused);
    return refused.ok();
  }
  // Follows no more. False: it did not.
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

// A stream of T about one job. Subclasses say what comes next.
template <typename T>
class FollowStream : public grpc::ServerWriteReactor<T>,
                     public JobFollower,
                     public std::enable_shared_from_this<FollowStream<T>> {
 public:
  FollowStream(Engine* engine, Followers* followers, std::string job, Follows by)
      : JobFollower(engine, followers, std::move(job), std::move(by)) {}

  // Called once, right after construction.
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
      // What comes next has to be committed.
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
  // Fills in the next item; false if there is none yet. Here and in Over job() is never null.
  virtual absl::StatusOr<bool> Next(T* item) = 0;
  // True if no further items will come into being.
  virtual bool Over() = 0;
  // For a stream that is over: whether the item that Next gave is the last one.
  virtual bool IsLast() = 0;
  // The job changed while an item is being written. Keeps what is needed in case the job is deleted
  // before the write is done.
  virtual void Remember() {}
  // For a deleted job: fills in what Remember kept, if this is everything that is left to send;
  // otherwise false.
  virtual bool Rest(T*) { return false; }

 private:
  // The job is deleted: sends what is left of it, and ends.
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

  // Keeps this alive until gRPC is done with it.
  std::shared_ptr<FollowStream> self_;

  T item_;
  bool writing_ = false;
  // The item that was given last to gRPC is the last one.
  bool complete_ = false;
  bool deleted_ = false;
  absl::Status end_status_;
};

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_FOLLOW_H_
