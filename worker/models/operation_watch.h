// Intercepts the operations of LibTorch that a thread runs. A watch may change the arguments,
// refuse the operation by an exception, run the operation, or return other results.
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
// Accesses through the address of a tensor's memory are not intercepted.
#ifndef MUSTER_WORKER_MODELS_OPERATION_WATCH_H_
#define MUSTER_WORKER_MODELS_OPERATION_WATCH_H_

#include "ATen/core/dispatch/Dispatcher.h"
#include "ATen/core/stack.h"
#include "c10/core/impl/LocalDispatchKeySet.h"

namespace muster::models {

class OperationWatch {
 public:
  virtual ~OperationWatch() = default;

  // Runs in place of an operation. On entry, the end of `stack` has the arguments; on return, the
  // results must be in their place. Operations that this function runs are intercepted again,
  // except under a Pause.
  virtual void Run(const c10::OperatorHandle& op, c10::Stack* stack) = 0;

  // Makes the watch intercept the operations of this thread during the life of the object. An inner
  // scope replaces the watch by another.
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

  // Turns all watches of this thread off during the life of the object.
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
