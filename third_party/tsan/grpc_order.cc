// Tells ThreadSanitizer about the order of events in Debian's gRPC, which is not instrumented:
// - One thread begins a batch of operations of a call, and another thread declares the batch done.
//   All earlier actions of both threads happen before any use of the result, in the callback of the
//   batch or after the wait for the batch.
// - The callbacks of a server's call, OnCancel among them, happen before OnDone, and before the
//   call is destroyed.
// - The calls of a server end before its shutdown ends.
// - A thread hands a message to a call. Its earlier actions happen before the actions of a thread
//   that has read the message from the connection, and before the end of a batch that receives the
//   message. Within gRPC, a message goes from thread to thread through queues without locks.
//
// Without this file, a callback that reads data of the thread which began its batch looks like a
// race. With suppressions instead, ThreadSanitizer would check nothing below a callback of gRPC.
// One kind of race stays hidden: two callbacks of different batches also count as ordered if gRPC
// took a lock of its own between them.
//
// These definitions stand before those of the libraries in symbol lookup.
#include <dlfcn.h>
#include <grpc/grpc.h>
#include <grpc/support/alloc.h>
#include <grpcpp/support/server_callback.h>
#include <netinet/in.h>
#include <sanitizer/tsan_interface.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace {

template <typename Function>
Function* Real(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

// Variables whose addresses stand for an order of events: the batches of all calls, and the data
// that was sent from a port.
char calls;
constexpr size_t kPorts = 1 << 16;
char ports[kPorts];

// Returns the port of a socket. 0: the socket has no address of the internet.
uint16_t Port(int (*name)(int, sockaddr*, socklen_t*), int socket) {
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

// Returns the port of the other end of a call, from an address such as ipv4:127.0.0.1:4242.
uint16_t PeerPort(grpc_call* call) {
  static auto* const get_peer = Real<decltype(grpc_call_get_peer)>("grpc_call_get_peer");
  static auto* const free = Real<decltype(gpr_free)>("gpr_free");
  char* const address = get_peer(call);
  const char* const colon = std::strrchr(address, ':');
  const uint16_t port = colon == nullptr ? 0 : std::strtoul(colon + 1, nullptr, 10);
  free(address);
  return port;
}

// The port from which the batch with a tag receives; 0: the batch only sends. Two tags may share an
// element, but there are few batches at a time. The atomics are relaxed, so that this table adds no
// order of its own.
std::array<std::atomic<uint16_t>, 1 << 16> received_from;

std::atomic<uint16_t>& ReceivedFrom(const void* tag) {
  return received_from[(reinterpret_cast<uintptr_t>(tag) * 0x9e3779b97f4a7c15u) >> 48];
}

// Called after the wait for a batch, also in the thread that then runs the batch's callback.
void BatchIsDone(const grpc_event& event) {
  if (event.type != GRPC_OP_COMPLETE || event.tag == nullptr) return;
  __tsan_acquire(event.tag);
  const uint16_t port = ReceivedFrom(event.tag).load(std::memory_order_relaxed);
  if (port != 0) __tsan_acquire(&ports[port]);
}

// A call of a server has two counts. When the first reaches zero, OnCancel may run. When the second
// reaches zero, all other callbacks have ended, and OnDone may run. Inline code of gRPC's headers
// changes the counts, which ThreadSanitizer sees. Code within the library changes them, too, which
// ThreadSanitizer does not see. In Debian's gRPC 1.51 the counts follow the pointer to virtual
// functions.
char* CancelCount(void* call) { return static_cast<char*>(call) + sizeof(void*); }
char* CallbackCount(void* call) { return CancelCount(call) + sizeof(int); }

// A replacement for a reactor while gRPC calls the reactor's OnCancel. gRPC does not use the
// replacement for anything else, or after OnCancel has returned.
class CancelledReactor : public grpc::internal::ServerReactor {
 public:
  CancelledReactor(void* call, ServerReactor* reactor) : call_(call), reactor_(reactor) {}

  void OnCancel() override {
    reactor_->OnCancel();
    // The library lowers the count after this release.
    __tsan_release(CallbackCount(call_));
    delete this;
  }
  void OnDone() override {}
  bool InternalInlineable() override { return reactor_->InternalInlineable(); }

 private:
  void* const call_;
  ServerReactor* const reactor_;
};

}  // namespace

extern "C" {

// The begin of a batch of operations of a call. Another thread may send the batch's bytes.
grpc_call_error grpc_call_start_batch(grpc_call* call, const grpc_op* ops, size_t count, void* tag,
                                      void* reserved) {
  static auto* const real = Real<decltype(grpc_call_start_batch)>("grpc_call_start_batch");
  const bool receives = std::any_of(
      ops, ops + count, [](const grpc_op& op) { return op.op >= GRPC_OP_RECV_INITIAL_METADATA; });
  ReceivedFrom(tag).store(receives ? PeerPort(call) : 0, std::memory_order_relaxed);
  __tsan_release(&calls);
  if (tag != nullptr) __tsan_release(tag);
  return real(call, ops, count, tag, reserved);
}

// grpc_cq_end_op(): a batch is done. The absl::Status is passed by its address.
#define END_BATCH                                          \
  "_Z14grpc_cq_end_opP21grpc_completion_queuePvN4absl7deb" \
  "ian36StatusEPFvS1_P18grpc_cq_completionES1_S6_b"
void EndBatch(void* queue, void* tag, void* status, void* done, void* done_argument,
              void* completion, bool internal) asm(END_BATCH);
void EndBatch(void* queue, void* tag, void* status, void* done, void* done_argument,
              void* completion, bool internal) {
  static auto* const real = Real<decltype(EndBatch)>(END_BATCH);
  if (tag != nullptr) __tsan_release(tag);
  real(queue, tag, status, done, done_argument, completion, internal);
}

grpc_event grpc_completion_queue_next(grpc_completion_queue* queue, gpr_timespec deadline,
                                      void* reserved) {
  static auto* const real =
      Real<decltype(grpc_completion_queue_next)>("grpc_completion_queue_next");
  const grpc_event event = real(queue, deadline, reserved);
  BatchIsDone(event);
  return event;
}

grpc_event grpc_completion_queue_pluck(grpc_completion_queue* queue, void* tag,
                                       gpr_timespec deadline, void* reserved) {
  static auto* const real =
      Real<decltype(grpc_completion_queue_pluck)>("grpc_completion_queue_pluck");
  const grpc_event event = real(queue, tag, deadline, reserved);
  BatchIsDone(event);
  return event;
}

// grpc::internal::ServerCallbackCall::CallOnCancel(): the call was cancelled.
#define CALL_ON_CANCEL "_ZN4grpc8internal18ServerCallbackCall12CallOnCancelEPNS0_13ServerReactorE"
void CallOnCancel(void* call, grpc::internal::ServerReactor* reactor) asm(CALL_ON_CANCEL);
void CallOnCancel(void* call, grpc::internal::ServerReactor* reactor) {
  static auto* const real = Real<decltype(CallOnCancel)>(CALL_ON_CANCEL);
  __tsan_acquire(CancelCount(call));
  real(call, new CancelledReactor(call, reactor));
}

// grpc::internal::ServerCallbackCall::ScheduleOnDone(): all other callbacks have ended. The call is
// destroyed after OnDone.
#define SCHEDULE_ON_DONE "_ZN4grpc8internal18ServerCallbackCall14ScheduleOnDoneEb"
void ScheduleOnDone(void* call, bool here) asm(SCHEDULE_ON_DONE);
void ScheduleOnDone(void* call, bool here) {
  static auto* const real = Real<decltype(ScheduleOnDone)>(SCHEDULE_ON_DONE);
  __tsan_acquire(CancelCount(call));
  __tsan_acquire(CallbackCount(call));
  real(call, here);
}

// grpc::Server::UnrefWithPossibleNotify(): a call of the server has ended, also its OnDone.
#define CALL_ENDED "_ZN4grpc6Server23UnrefWithPossibleNotifyEv"
void CallEnded(void* server) asm(CALL_ENDED);
void CallEnded(void* server) {
  static auto* const real = Real<decltype(CallEnded)>(CALL_ENDED);
  __tsan_release(server);
  real(server);
}

// grpc::Server::UnrefAndWaitLocked(): the shutdown waits until all calls have ended.
#define AWAIT_CALLS "_ZN4grpc6Server18UnrefAndWaitLockedEv"
void AwaitCalls(void* server) asm(AWAIT_CALLS);
void AwaitCalls(void* server) {
  static auto* const real = Real<decltype(AwaitCalls)>(AWAIT_CALLS);
  real(server);
  __tsan_acquire(server);
}

ssize_t sendmsg(int socket, const msghdr* message, int flags) {
  __tsan_acquire(&calls);
  __tsan_release(&ports[Port(getsockname, socket)]);
  return syscall(SYS_sendmsg, socket, message, flags);
}

ssize_t recvmsg(int socket, msghdr* message, int flags) {
  const ssize_t bytes = syscall(SYS_recvmsg, socket, message, flags);
  if (bytes > 0) __tsan_acquire(&ports[Port(getpeername, socket)]);
  return bytes;
}

}  // extern "C"
