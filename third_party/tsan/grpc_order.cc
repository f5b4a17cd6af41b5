// Tells ThreadSanitizer what Debian's gRPC, which is not instrumented, puts in order:
//  - what a thread did before it began a batch of operations of a call has happened before the
//    callback that says that this batch is done;
//  - the callbacks of a server's call, OnCancel among them, have happened before OnDone, and before
//    the call is destroyed;
//  - what a thread did before it handed a message to a call has happened before what another thread
//    does once it has read that message from the connection.
// Without this, a callback that reads what the beginner of its batch wrote looks like a race; with
// suppressions instead, nothing below a callback of gRPC would be looked at. What remains hidden:
// two callbacks of different batches are in order, too, where gRPC took a lock of its own between
// them.
//
// These definitions stand before those of the libraries in symbol lookup.
#include <dlfcn.h>
#include <grpc/grpc.h>
#include <grpcpp/support/server_callback.h>
#include <link.h>
#include <netinet/in.h>
#include <sanitizer/tsan_interface.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <utility>

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

// Whether an address lies in the code of a program or a library.
bool IsCode(const void* address) {
  const auto holds = [](dl_phdr_info* module, size_t, void* sought) {
    for (int i = 0; i < module->dlpi_phnum; ++i) {
      const ElfW(Phdr)& segment = module->dlpi_phdr[i];
      const uintptr_t begin = module->dlpi_addr + segment.p_vaddr;
      const uintptr_t place = reinterpret_cast<uintptr_t>(sought);
      if (segment.p_type == PT_LOAD && (segment.p_flags & PF_X) != 0 && place >= begin &&
          place < begin + segment.p_memsz) {
        return 1;
      }
    }
    return 0;
  };
  return dl_iterate_phdr(holds, const_cast<void*>(address)) != 0;
}

// gRPC has a handful of functions that begin a callback (success, status), and as many stand-ins
// here tell of the order first. Relaxed atomics: this table must not order what it looks at.
using Begin = void (*)(grpc_completion_queue_functor*, int);
constexpr size_t kBegins = 16;
std::array<std::atomic<Begin>, kBegins> begins;

template <size_t index>
void Ordered(grpc_completion_queue_functor* callback, int ok) {
  __tsan_acquire(callback);
  begins[index].load(std::memory_order_relaxed)(callback, ok);
}

template <size_t... index>
constexpr std::array<Begin, kBegins> Stand(std::index_sequence<index...>) {
  return {Ordered<index>...};
}
constexpr std::array<Begin, kBegins> kStandIns = Stand(std::make_index_sequence<kBegins>());

Begin StandInFor(Begin begin) {
  for (size_t i = 0; i < kBegins; ++i) {
    if (begin == kStandIns[i]) return begin;
    Begin there = nullptr;
    if (begins[i].compare_exchange_strong(there, begin, std::memory_order_relaxed) ||
        there == begin) {
      return kStandIns[i];
    }
  }
  return begin;
}

// A call of a server has two counts. When the first reaches zero, OnCancel may run. When the second
// reaches zero, all other callbacks have ended, and OnDone may run. Inline code of gRPC's headers
// changes them, which ThreadSanitizer sees, and so does code within the library, which it does not
// see. In Debian's gRPC 1.51 they follow the pointer to virtual functions.
char* CancelCount(void* call) { return static_cast<char*>(call) + sizeof(void*); }
char* CallbackCount(void* call) { return CancelCount(call) + sizeof(int); }

// Takes the place of a reactor while gRPC calls its OnCancel. gRPC uses it for nothing else, and no
// longer once OnCancel has returned.
class CancelledReactor : public grpc::internal::ServerReactor {
 public:
  CancelledReactor(void* call, ServerReactor* reactor) : call_(call), reactor_(reactor) {}

  void OnCancel() override {
    reactor_->OnCancel();
    // After this, the library lowers the count.
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

// A batch of operations of a call begins. The thread that sends its bytes may be another one.
grpc_call_error grpc_call_start_batch(grpc_call* call, const grpc_op* ops, size_t count, void* tag,
                                      void* reserved) {
  static auto* const real =
      reinterpret_cast<decltype(&grpc_call_start_batch)>(dlsym(RTLD_NEXT, "grpc_call_start_batch"));
  __tsan_release(&calls);
  if (tag != nullptr) {
    // The tag of a batch that ends in a callback begins with the address of a function, any other
    // with that of a table of virtual functions.
    auto* const callback = static_cast<grpc_completion_queue_functor*>(tag);
    if (IsCode(reinterpret_cast<const void*>(callback->functor_run))) {
      callback->functor_run = StandInFor(callback->functor_run);
    }
    // Behind the change of the tag: another thread may use the same tag for the next batch.
    __tsan_release(tag);
  }
  return real(call, ops, count, tag, reserved);
}

// grpc::internal::ServerCallbackCall::CallOnCancel(): the call was cancelled.
void CallOnCancel(void* call, grpc::internal::ServerReactor* reactor) asm(
    "_ZN4grpc8internal18ServerCallbackCall12CallOnCancelEPNS0_13ServerReactorE");
void CallOnCancel(void* call, grpc::internal::ServerReactor* reactor) {
  static auto* const real = reinterpret_cast<decltype(&CallOnCancel)>(
      dlsym(RTLD_NEXT,
            "_ZN4grpc8internal18ServerCallbackCall12CallOnCancelEPNS0_13ServerReactorE"));
  __tsan_acquire(CancelCount(call));
  real(call, new CancelledReactor(call, reactor));
}

// grpc::internal::ServerCallbackCall::ScheduleOnDone(): all other callbacks have ended. The call is
// destroyed after OnDone.
void ScheduleOnDone(void* call,
                    bool here) asm("_ZN4grpc8internal18ServerCallbackCall14ScheduleOnDoneEb");
void ScheduleOnDone(void* call, bool here) {
  static auto* const real = reinterpret_cast<decltype(&ScheduleOnDone)>(
      dlsym(RTLD_NEXT, "_ZN4grpc8internal18ServerCallbackCall14ScheduleOnDoneEb"));
  __tsan_acquire(CancelCount(call));
  __tsan_acquire(CallbackCount(call));
  real(call, here);
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
