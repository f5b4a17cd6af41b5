// Tells ThreadSanitizer about absl::Mutex. Debian's Abseil is not instrumented. Without this file,
// ThreadSanitizer sees no lock, and every guarded member looks like a race. These definitions stand
// before the library's in symbol lookup, also for gRPC, and call the library's.
#include <dlfcn.h>
#include <sanitizer/tsan_interface.h>

#include "absl/synchronization/mutex.h"

namespace absl {
ABSL_NAMESPACE_BEGIN

namespace {

template <typename Function>
Function* Real(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

// A wait for a condition, during which the mutex is released. The mutex is held before and after.
class Waiting {
 public:
  explicit Waiting(void* mutex) : mutex_(mutex) {
    __tsan_mutex_pre_unlock(mutex_, 0);
    __tsan_mutex_post_unlock(mutex_, 0);
    __tsan_mutex_pre_lock(mutex_, 0);
  }
  ~Waiting() { __tsan_mutex_post_lock(mutex_, 0, 0); }

 private:
  void* const mutex_;
};

class Locking {
 public:
  explicit Locking(void* mutex, unsigned flags = 0) : mutex_(mutex), flags_(flags) {
    __tsan_mutex_pre_lock(mutex_, flags_);
  }
  ~Locking() { __tsan_mutex_post_lock(mutex_, flags_, 0); }

 private:
  void* const mutex_;
  const unsigned flags_;
};

}  // namespace

void Mutex::Lock() {
  static auto* real = Real<void(Mutex*)>("_ZN4absl7debian35Mutex4LockEv");
  Locking locking(this);
  real(this);
}

void Mutex::Unlock() {
  static auto* real = Real<void(Mutex*)>("_ZN4absl7debian35Mutex6UnlockEv");
  __tsan_mutex_pre_unlock(this, 0);
  real(this);
  __tsan_mutex_post_unlock(this, 0);
}

bool Mutex::TryLock() {
  static auto* real = Real<bool(Mutex*)>("_ZN4absl7debian35Mutex7TryLockEv");
  __tsan_mutex_pre_lock(this, __tsan_mutex_try_lock);
  const bool locked = real(this);
  __tsan_mutex_post_lock(
      this, locked ? __tsan_mutex_try_lock : __tsan_mutex_try_lock | __tsan_mutex_try_lock_failed,
      0);
  return locked;
}

void Mutex::ReaderLock() {
  static auto* real = Real<void(Mutex*)>("_ZN4absl7debian35Mutex10ReaderLockEv");
  Locking locking(this, __tsan_mutex_read_lock);
  real(this);
}

void Mutex::ReaderUnlock() {
  static auto* real = Real<void(Mutex*)>("_ZN4absl7debian35Mutex12ReaderUnlockEv");
  __tsan_mutex_pre_unlock(this, __tsan_mutex_read_lock);
  real(this);
  __tsan_mutex_post_unlock(this, __tsan_mutex_read_lock);
}

void Mutex::LockWhen(const Condition& condition) {
  static auto* real =
      Real<void(Mutex*, const Condition&)>("_ZN4absl7debian35Mutex8LockWhenERKNS0_9ConditionE");
  Locking locking(this);
  real(this, condition);
}

// LockWhenWithTimeout and Notification call this function.
bool Mutex::LockWhenWithDeadline(const Condition& condition, Time deadline) {
  static auto* real = Real<bool(Mutex*, const Condition&, Time)>(
      "_ZN4absl7debian35Mutex20LockWhenWithDeadlineERKNS0_9ConditionENS0_4TimeE");
  Locking locking(this);
  return real(this, condition, deadline);
}

void Mutex::Await(const Condition& condition) {
  static auto* real =
      Real<void(Mutex*, const Condition&)>("_ZN4absl7debian35Mutex5AwaitERKNS0_9ConditionE");
  Waiting waiting(this);
  real(this, condition);
}

// AwaitWithTimeout calls this function.
bool Mutex::AwaitWithDeadline(const Condition& condition, Time deadline) {
  static auto* real = Real<bool(Mutex*, const Condition&, Time)>(
      "_ZN4absl7debian35Mutex17AwaitWithDeadlineERKNS0_9ConditionENS0_4TimeE");
  Waiting waiting(this);
  return real(this, condition, deadline);
}

void CondVar::Wait(Mutex* mutex) {
  static auto* real = Real<void(CondVar*, Mutex*)>("_ZN4absl7debian37CondVar4WaitEPNS0_5MutexE");
  Waiting waiting(mutex);
  real(this, mutex);
}

// WaitWithTimeout calls this function.
bool CondVar::WaitWithDeadline(Mutex* mutex, Time deadline) {
  static auto* real = Real<bool(CondVar*, Mutex*, Time)>(
      "_ZN4absl7debian37CondVar16WaitWithDeadlineEPNS0_5MutexENS0_4TimeE");
  Waiting waiting(mutex);
  return real(this, mutex, deadline);
}

ABSL_NAMESPACE_END
}  // namespace absl
