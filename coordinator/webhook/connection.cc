#include "coordinator/webhook/connection.h"

#include <netdb.h>
#include <netinet/in.h>
#include <openssl/err.h>
#include <openssl/x509.h>
#include <openssl/x509_vfy.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/status/status.h"
#include "common/steady/now.h"

namespace muster::webhook {
namespace {

bool WouldBlock() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

}  // namespace

absl::StatusOr<std::unique_ptr<Connection>> Connection::Open(ConnectionOptions options) {
  std::unique_ptr<Connection> self(new Connection(std::move(options)));
  RETURN_IF_ERROR(self->Connect());
  if (self->options_.url.tls) RETURN_IF_ERROR(self->StartTls());
  return self;
}

Connection::~Connection() {
  if (tls_ == nullptr) return;
  ERR_clear_error();
  // Says that it ends, if the socket takes it; the answer does not matter.
  if (SSL_is_init_finished(tls_.get()) == 1) (void)SSL_shutdown(tls_.get());
  ERR_clear_error();
}

absl::Status Connection::Connect() {
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  const std::string port = absl::StrCat(options_.url.port);
  if (getaddrinfo(options_.address.c_str(), port.c_str(), &hints, &list) != 0) {
    return absl::UnavailableError(absl::StrCat("'", options_.address, "' is no address"));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> address(list, freeaddrinfo);
  socket_ = process::Fd(
      socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP));
  if (socket_.get() < 0) {
    return absl::UnavailableError(absl::StrCat("there is no socket: ", strerror(errno)));
  }
  if (connect(socket_.get(), address->ai_addr, address->ai_addrlen) == 0) return absl::OkStatus();
  if (errno != EINPROGRESS) return absl::UnavailableError("no connection");
  if (const absl::Status ready = Await(POLLOUT, options_.connect_wait); !ready.ok()) {
    return absl::UnavailableError(absl::IsDeadlineExceeded(ready)
                                      ? "no connection in time"
                                      : absl::StrCat("no connection: ", Message(ready)));
  }
  int error = 0;
  socklen_t size = sizeof(error);
  const int known = getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  if (known == 0 && error == 0) return absl::OkStatus();
  return absl::UnavailableError("no connection");
}

absl::Status Connection::StartTls() {
  const std::string& host = options_.url.host;
  ERR_clear_error();
  context_.reset(SSL_CTX_new(TLS_client_method()));
  if (context_ == nullptr) return absl::UnavailableError("no TLS connection: no memory");
  SSL_CTX_set_min_proto_version(context_.get(), TLS1_2_VERSION);
  const int trusts =
      options_.ca_file.empty()
          ? SSL_CTX_set_default_verify_paths(context_.get())
          : SSL_CTX_load_verify_locations(context_.get(), options_.ca_file.c_str(), nullptr);
  if (trusts != 1) {
    return absl::UnavailableError(
        absl::StrCat("the trusted certificates cannot be read",
                     options_.ca_file.empty() ? "" : absl::StrCat(" from ", options_.ca_file)));
  }
  tls_.reset(SSL_new(context_.get()));
  if (tls_ == nullptr) return absl::UnavailableError("no TLS connection: no memory");
  SSL_set_verify(tls_.get(), SSL_VERIFY_PEER, nullptr);
  // Otherwise one call could go on for as long as the receiver sends what is no data.
  SSL_clear_mode(tls_.get(), SSL_MODE_AUTO_RETRY);
  SSL_set_hostflags(tls_.get(), X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
  const bool set = SSL_set_fd(tls_.get(), socket_.get()) == 1 &&
                   (IsAddress(host) ? X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(tls_.get()),
                                                                    host.c_str()) == 1
                                    : SSL_set1_host(tls_.get(), host.c_str()) == 1 &&
                                          SSL_set_tlsext_host_name(tls_.get(), host.c_str()) == 1);
  // Without the name nothing would be compared with the certificate.
  if (!set) return absl::UnavailableError("no TLS connection: it cannot be prepared");
  const auto connected = Repeat([this] { return SSL_connect(tls_.get()); });
  if (connected.ok() && *connected > 0) return absl::OkStatus();
  if (const long why = SSL_get_verify_result(tls_.get()); why != X509_V_OK) {
    return absl::UnavailableError(
        absl::StrCat("the receiver's certificate is not valid for '", host,
                     "', or nobody that is trusted has signed it (--webhook-ca): ",
                     X509_verify_cert_error_string(why)));
  }
  return absl::UnavailableError("no TLS connection");
}

absl::Status Connection::Await(short events, absl::Duration wait) const {
  return options_.interrupt->Await(socket_.get(), events,
                                   std::min(options_.deadline, SteadyNow() + wait));
}

template <typename Step>
absl::StatusOr<size_t> Connection::Repeat(Step step) {
  while (true) {
    ERR_clear_error();
    const int result = step();
    if (result > 0) return static_cast<size_t>(result);
    switch (SSL_get_error(tls_.get(), result)) {
      case SSL_ERROR_WANT_READ:
        RETURN_IF_ERROR(Await(POLLIN, options_.wait));
        break;
      case SSL_ERROR_WANT_WRITE:
        RETURN_IF_ERROR(Await(POLLOUT, options_.wait));
        break;
      case SSL_ERROR_ZERO_RETURN:
        return size_t{0};
      default:
        return absl::UnavailableError("the connection of TLS has ended");
    }
  }
}

absl::Status Connection::Write(absl::string_view bytes) {
  const absl::Status failed = absl::UnavailableError("the message could not be written");
  while (!bytes.empty()) {
    const int most = static_cast<int>(std::min<size_t>(bytes.size(), INT_MAX));
    if (tls_ != nullptr) {
      const auto written = Repeat([&] { return SSL_write(tls_.get(), bytes.data(), most); });
      if (!written.ok() || *written == 0) return failed;
      bytes.remove_prefix(*written);
      continue;
    }
    const ssize_t written = send(socket_.get(), bytes.data(), most, MSG_NOSIGNAL);
    if (written > 0) {
      bytes.remove_prefix(static_cast<size_t>(written));
    } else if (!WouldBlock() || !Await(POLLOUT, options_.wait).ok()) {
      return failed;
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<size_t> Connection::Read(char* buffer, size_t size) {
  const absl::Status failed =
      absl::UnavailableError("the connection ended, or was silent, before an HTTP answer");
  const int most = static_cast<int>(std::min<size_t>(size, INT_MAX));
  // Also if there is always something to read.
  if (options_.deadline <= SteadyNow() || options_.interrupt->is_set()) return failed;
  if (tls_ != nullptr) {
    const auto read = Repeat([&] { return SSL_read(tls_.get(), buffer, most); });
    if (!read.ok()) return failed;
    return read;
  }
  while (true) {
    const ssize_t read = recv(socket_.get(), buffer, most, 0);
    if (read >= 0) return static_cast<size_t>(read);
    if (!WouldBlock() || !Await(POLLIN, options_.wait).ok()) return failed;
  }
}

void Connection::EndBefore(absl::Time deadline) {
  options_.deadline = std::min(options_.deadline, deadline);
}

}  // namespace muster::webhook
