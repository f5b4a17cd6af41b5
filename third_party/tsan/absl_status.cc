// Tells ThreadSanitizer who uses an absl::Status last. Copies share what they hold, and Debian's
// Abseil, which is not instrumented, counts them: what a thread did with its copy has happened
// before another thread, whose copy is the last one, deletes what they share. This definition
// stands before the library's in symbol lookup and calls on to it.
#include <dlfcn.h>
#include <sanitizer/tsan_interface.h>

#include <cstdint>

#include "absl/status/status.h"

namespace absl {
ABSL_NAMESPACE_BEGIN

void Status::UnrefNonInlined(uintptr_t rep) {
  static auto* const real = reinterpret_cast<void (*)(uintptr_t)>(
      dlsym(RTLD_NEXT, "_ZN4absl7debian36Status15UnrefNonInlinedEm"));
  __tsan_release(reinterpret_cast<void*>(rep));
  __tsan_acquire(reinterpret_cast<void*>(rep));
  real(rep);
}

ABSL_NAMESPACE_END
}  // namespace absl
