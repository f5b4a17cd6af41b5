#include "coordinator/webhook/interrupt.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/steady/now.h"

namespace muster::webhook {

Interrupt::Interrupt() : event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

void Interrupt::Set() {
  set_ = true;
  const uint64_t one = 1;
  (void)!write(event_.get(), &one, sizeof(one));
}

absl::Status Interrupt::Await(int socket, short events, absl::Time until) const {
  if (event_.get() < 0) {
    return absl::ResourceExhaustedError("there is no file descriptor left (`ulimit -n`)");
  }
  while (true) {
    if (set_) return absl::CancelledError("aborted");
    const absl::Duration left = until - SteadyNow();
    if (left <= absl::ZeroDuration()) return absl::DeadlineExceededError("too late");
    std::array<pollfd, 2> polled = {{{.fd = socket, .events = events, .revents = 0},
                                     {.fd = event_.get(), .events = POLLIN, .revents = 0}}};
    const int64_t wait = absl::ToInt64Milliseconds(std::min(left, absl::Minutes(1))) + 1;
    const int ready = poll(polled.data(), polled.size(), static_cast<int>(wait));
    if (ready < 0 && errno != EINTR) {
      return absl::UnavailableError(absl::StrCat("poll: ", strerror(errno)));
    }
    if (ready > 0 && !set_ && polled[0].revents != 0) return absl::OkStatus();
  }
}

}  // namespace muster::webhook
