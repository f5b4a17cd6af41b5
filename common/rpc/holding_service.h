// Calls that a server completes only when a test allows it. For tests.
#ifndef MUSTER_COMMON_RPC_HOLDING_SERVICE_H_
#define MUSTER_COMMON_RPC_HOLDING_SERVICE_H_

#include <grpcpp/support/server_callback.h>
#include <gtest/gtest.h>

#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/steady/condition.h"
#include "common/steady/test_bound.h"
#include "proto/muster/v1/agent_service.grpc.pb.h"

namespace muster {

// Holds each call of Attach, also after its client has stopped waiting. Thread-safe.
class HoldingService final : public v1::AgentService::CallbackService {
 public:
  grpc::ServerBidiReactor<v1::AgentMessage, v1::AgentDirective>* Attach(
      grpc::CallbackServerContext*) override {
    auto* call = new Call(this);
    absl::MutexLock lock(&mutex_);
    ++begun_;
    held_.push_back(call);
    changed_.Changed();
    return call;
  }

  int begun() ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    return begun_;
  }
  // Returns whether so many calls have begun, and been cancelled, in time.
  bool AwaitBegun(int calls) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    return changed_.Await(mutex_, kTestBound,
                          [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return begun_ >= calls; });
  }
  bool AwaitCancelled(int calls) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    return changed_.Await(mutex_, kTestBound, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return cancelled_ >= calls;
    });
  }
  // Ends the held calls, and returns when gRPC is done with them. A server waits for this at its
  // end.
  void Release() ABSL_LOCKS_EXCLUDED(mutex_) {
    std::vector<Call*> calls;
    {
      absl::MutexLock lock(&mutex_);
      calls.swap(held_);
    }
    for (Call* call : calls) call->Finish(grpc::Status::OK);
    absl::MutexLock lock(&mutex_);
    EXPECT_TRUE(changed_.Await(mutex_, kTestBound, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return done_ == begun_;
    }));
  }

 private:
  class Call final : public grpc::ServerBidiReactor<v1::AgentMessage, v1::AgentDirective> {
   public:
    explicit Call(HoldingService* service) : service_(service) {}
    void OnCancel() override { service_->Count(&service_->cancelled_); }
    void OnDone() override {
      HoldingService* const service = service_;
      delete this;
      service->Count(&service->done_);
    }

   private:
    HoldingService* const service_;
  };

  void Count(int* what) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    ++*what;
    changed_.Changed();
  }

  absl::Mutex mutex_;
  SteadyCondition changed_;
  std::vector<Call*> held_ ABSL_GUARDED_BY(mutex_);
  int begun_ ABSL_GUARDED_BY(mutex_) = 0;
  int cancelled_ ABSL_GUARDED_BY(mutex_) = 0;
  int done_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace muster

#endif  // MUSTER_COMMON_RPC_HOLDING_SERVICE_H_
