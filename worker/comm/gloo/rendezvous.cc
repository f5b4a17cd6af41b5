#include "worker/comm/gloo/rendezvous.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "torch/csrc/distributed/c10d/TCPStore.hpp"
#include "worker/comm/gloo/exceptions.h"
#include "worker/comm/gloo/rendezvous_impl.h"
#include "worker/comm/gloo/sealed_store.h"

namespace muster::comm {
namespace {

struct Listener {
  int fd = -1;
  uint16_t port = 0;
};

// Opens the listener for the store. A TCPStore that opens its own listens on every address.
absl::StatusOr<Listener> ListenOn(const std::string& host) {
  const auto failed = [&host](const char* call) {
    return absl::UnavailableError(
        absl::StrCat("cannot host the rendezvous on ", host, ": ", call, ": ", strerror(errno)));
  };
  sockaddr_storage address = {};
  socklen_t length = 0;
  auto* v4 = reinterpret_cast<sockaddr_in*>(&address);
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&address);
  if (inet_pton(AF_INET, host.c_str(), &v4->sin_addr) == 1) {
    address.ss_family = AF_INET;
    length = sizeof(*v4);
  } else if (inet_pton(AF_INET6, host.c_str(), &v6->sin6_addr) == 1) {
    address.ss_family = AF_INET6;
    length = sizeof(*v6);
  } else {
    return absl::InvalidArgumentError(absl::StrCat("'", host, "' is not a numeric address"));
  }
  Listener listener{.fd = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  if (listener.fd < 0) return failed("socket");
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (bind(listener.fd, generic, length) != 0 || listen(listener.fd, 2048) != 0 ||
      getsockname(listener.fd, generic, &length) != 0) {
    const absl::Status status = failed("bind");
    close(listener.fd);
    return status;
  }
  listener.port = ntohs(address.ss_family == AF_INET ? v4->sin_port : v6->sin6_port);
  return listener;
}

absl::StatusOr<std::unique_ptr<RendezvousStore>> MakeStore(const std::string& host,
                                                           const c10d::TCPStoreOptions& options,
                                                           const std::string& secret) {
  auto impl = std::make_unique<RendezvousStore::Impl>();
  const absl::Status status = CatchExceptions([&] {
    auto store = c10::make_intrusive<c10d::TCPStore>(host, options);
    impl->port = store->getPort();
    impl->store = std::move(store);
    if (!secret.empty()) {
      impl->store = c10::make_intrusive<SealedStore>(secret, std::move(impl->store));
    }
  });
  if (!status.ok()) {
    return absl::UnavailableError(absl::StrCat("no rendezvous at ", host, ":", options.port, ": ",
                                               std::string(status.message())));
  }
  return std::make_unique<RendezvousStore>(std::move(impl));
}

}  // namespace

RendezvousStore::RendezvousStore(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
RendezvousStore::~RendezvousStore() = default;
uint16_t RendezvousStore::port() const { return impl_->port; }

absl::Status RendezvousStore::Put(const std::string& key, const std::string& value) {
  return CatchExceptions(
      [&] { impl_->store->set(key, std::vector<uint8_t>(value.begin(), value.end())); });
}

absl::StatusOr<std::string> RendezvousStore::Await(const std::string& key,
                                                   std::chrono::milliseconds timeout) {
  std::string value;
  const absl::Status status = CatchExceptions([&] {
    impl_->store->wait({key}, timeout);
    const std::vector<uint8_t> bytes = impl_->store->get(key);
    value.assign(bytes.begin(), bytes.end());
  });
  if (!status.ok()) return status;
  return value;
}

absl::StatusOr<std::unique_ptr<RendezvousStore>> HostStore(const std::string& host,
                                                           const std::string& secret) {
  absl::StatusOr<Listener> listener = ListenOn(host);
  if (!listener.ok()) return listener.status();
  c10d::TCPStoreOptions options;
  options.port = listener->port;
  options.isServer = true;
  options.waitWorkers = false;
  options.masterListenFd = listener->fd;  // the store owns the listener from here
  return MakeStore(host, options, secret);
}

absl::StatusOr<std::unique_ptr<RendezvousStore>> ConnectStore(const std::string& host,
                                                              uint16_t port,
                                                              std::chrono::milliseconds timeout,
                                                              const std::string& secret) {
  c10d::TCPStoreOptions options;
  options.port = port;
  options.waitWorkers = false;
  options.timeout = timeout;
  return MakeStore(host, options, secret);
}

}  // namespace muster::comm
