// Tells ThreadSanitizer what Debian's gRPC, which is not instrumented, puts in order: what a thread
// did before it handed a message to a call has happened before what another thread does once it has
// read that message from the connection. Without this, a test that reads what a server's handler
// wrote before it answered looks like a race; with suppressions instead, nothing below a callback
// of gRPC would be looked at.
//
// These definitions stand before those of the libraries in symbol lookup.
#include <dlfcn.h>
#include <grpc/grpc.h>
#include <netinet/in.h>
#include <sanitizer/tsan_interface.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

namespace {

// The address of an element stands for what is ordered by it.
char calls;
constexpr uint32_t kConnections = 1 << 16;
char connections[kConnections];

// 0: no address of the internet.
uint32_t Port(int (*name)(int, sockaddr*, socklen_t*), int socket) {
  sockaddr_storage address = {};
  socklen_t length = sizeof(address);
  if (name(socket, reinterpret_cast<sockaddr*>(&address), &length) != 0) return 0;
  if (address.ss_family == AF_INET) {
    return ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port);
  }
  if (address.ss_family == AF_INET6) {
    return ntohs(reinterpret_cast<const sockaddr_in6&>(address).sin6_port);
  }
  return 0;
}

// One direction of a connection, the same at both of its ends.
char* Direction(uint32_t sender, uint32_t receiver) {
  return &connections[(sender * 40503u + receiver) % kConnections];
}

}  // namespace

extern "C" {

// A batch of operations of a call begins. The thread that sends its bytes may be another one.
grpc_call_error grpc_call_start_batch(grpc_call* call, const grpc_op* ops, size_t count, void* tag,
                                      void* reserved) {
  static auto* const real =
      reinterpret_cast<decltype(&grpc_call_start_batch)>(dlsym(RTLD_NEXT, "grpc_call_start_batch"));
  __tsan_release(&calls);
  return real(call, ops, count, tag, reserved);
}

ssize_t sendmsg(int socket, const msghdr* message, int flags) {
  __tsan_acquire(&calls);
  __tsan_release(Direction(Port(getsockname, socket), Port(getpeername, socket)));
  return syscall(SYS_sendmsg, socket, message, flags);
}

ssize_t recvmsg(int socket, msghdr* message, int flags) {
  const ssize_t bytes = syscall(SYS_recvmsg, socket, message, flags);
  if (bytes > 0) __tsan_acquire(Direction(Port(getpeername, socket), Port(getsockname, socket)));
  return bytes;
}

}  // extern "C"
