#include "worker/models/operation_watch.h"

#include <utility>

namespace muster::models {
namespace {

// No tensor has this key, and no other code in this process uses the key. In a thread that includes
// the key, every operation is first dispatched to GoToWatch.
constexpr c10::DispatchKey kKey = c10::DispatchKey::TESTING_ONLY_GenericMode;

constinit thread_local OperationWatch* current = nullptr;

void GoToWatch(const c10::OperatorHandle& op, c10::Stack* stack) { current->Run(op, stack); }

// Registered once for the whole process, before any thread runs operations. Called only in threads
// that include the key.
const c10::RegistrationHandleRAII registered = c10::Dispatcher::singleton().registerFallback(
    kKey, c10::KernelFunction::makeFromBoxedFunction<&GoToWatch>(), "OperationWatch");

}  // namespace

OperationWatch::Scope::Scope(OperationWatch* watch)
    : before_(std::exchange(current, watch)), guard_(c10::DispatchKeySet(kKey)) {}

OperationWatch::Scope::~Scope() { current = before_; }

OperationWatch::Pause::Pause() : guard_(c10::DispatchKeySet(kKey)) {}

OperationWatch::Pause::~Pause() = default;

}  // namespace muster::models
