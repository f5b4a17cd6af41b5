// An owned file descriptor.
#ifndef MUSTER_COMMON_PROCESS_FD_H_
#define MUSTER_COMMON_PROCESS_FD_H_

#include <unistd.h>

#include <utility>

namespace muster::process {

// Closes its descriptor at the end of its life. -1: there is none.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Fd() {
    if (fd_ >= 0) close(fd_);
  }

  int get() const { return fd_; }
  // Gives the descriptor to the caller, who closes it.
  int Release() && { return std::exchange(fd_, -1); }

 private:
  int fd_ = -1;
};

}  // namespace muster::process

#endif  // MUSTER_COMMON_PROCESS_FD_H_
