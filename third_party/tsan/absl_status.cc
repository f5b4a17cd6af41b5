// Tells ThreadSanitizer who uses an absl::Status last. Copies share their contents, and Debian's
// Abseil, which is not instrumented, counts the copies. All uses of a copy by a thread happen
// before another thread, which has the last copy, deletes the contents. This definition stands
// before the library's in symbol lookup, and calls the library's.
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
