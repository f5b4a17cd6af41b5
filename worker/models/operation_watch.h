// Sees the operations of LibTorch that a thread runs, each in its place: a watch may change the
// arguments, refuse the operation by an exception, run it, or give other results.
//
//   class Counts : public OperationWatch {
//     void Run(const c10::OperatorHandle& op, c10::Stack* stack) override {
//       ++count_;
//       const Pause pause;
//       op.callBoxed(stack);
//     }
//   };
//   Counts counts;
//   const OperationWatch::Scope scope(&counts);
//
// What code reads or writes through the address of a tensor's memory is not seen.
#ifndef MUSTER_WORKER_MODELS_OPERATION_WATCH_H_
#define MUSTER_WORKER_MODELS_OPERATION_WATCH_H_

#include "ATen/core/dispatch/Dispatcher.h"
#include "ATen/core/stack.h"
#include "c10/core/impl/LocalDispatchKeySet.h"

namespace muster::models {

class OperationWatch {
 public:
  virtual ~OperationWatch() = default;

  // An operation is about to run. The end of `stack` has its arguments; when this returns, its
  // results are in their place. Operations that are run from here come here again, unless there is
  // a Pause.
  virtual void Run(const c10::OperatorHandle& op, c10::Stack* stack) = 0;

  // While it lives, the watch sees the operations of this thread. In a scope inside of it, another
  // watch sees them in its place.
  class Scope {
   public:
    explicit Scope(OperationWatch* watch);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    OperationWatch* const before_;
    const c10::impl::IncludeDispatchKeyGuard guard_;
  };

  // While it lives, no watch sees the operations of this thread.
  class Pause {
   public:
    Pause();
    ~Pause();
    Pause(const Pause&) = delete;
    Pause& operator=(const Pause&) = delete;

   private:
    const c10::impl::ExcludeDispatchKeyGuard guard_;
  };
};

}  // namespace muster::models

#endif  // MUSTER_WORKER_MODELS_OPERATION_WATCH_H_
