// A connection to a receiver: TCP, and TLS (1.2 or newer) over it if the URL asks for it.
//
// No socket blocks. Each wait has a limit, all of them together have a deadline, and another thread
// can end them at once.
#ifndef MUSTER_COORDINATOR_WEBHOOK_CONNECTION_H_
#define MUSTER_COORDINATOR_WEBHOOK_CONNECTION_H_

#include <openssl/ssl.h>

#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/process/fd.h"
#include "coordinator/webhook/interrupt.h"
#include "coordinator/webhook/url.h"

namespace muster::webhook {

struct ConnectionOptions {
  Url url;
  // One of the host's, as a number: its name is not looked up here.
  std::string address;
  // PEM certificates that are trusted instead of the system's. Empty: the system's.
  std::string ca_file;
  // For the connection of TCP.
  absl::Duration connect_wait;
  // For each wait after it.
  absl::Duration wait;
  // For all (SteadyNow).
  absl::Time deadline;
  // Lives longer than the connection.
  const Interrupt* interrupt = nullptr;
};

// One thread, in which SIGPIPE is blocked. All errors are UNAVAILABLE, and their message says for
// people what did not work, in a sentence of a log.
class Connection {
 public:
  // Connects. With TLS, the receiver's certificate is valid for the URL's host. Nothing of a
  // message has been sent when this fails.
  static absl::StatusOr<std::unique_ptr<Connection>> Open(ConnectionOptions options);
  // Ends the connection without a wait.
  ~Connection();

  absl::Status Write(absl::string_view bytes);
  // At least one byte; 0: the receiver has ended the connection.
  absl::StatusOr<size_t> Read(char* buffer, size_t size);
  // Only makes it earlier.
  void EndBefore(absl::Time deadline);

 private:
  explicit Connection(ConnectionOptions options) : options_(std::move(options)) {}
  absl::Status Connect();
  absl::Status StartTls();
  absl::Status Await(short events, absl::Duration wait) const;
  // Repeats a function of OpenSSL as often as it wants to wait for the socket. Its result; 0: the
  // receiver has ended the connection.
  template <typename Step>
  absl::StatusOr<size_t> Repeat(Step step);

  ConnectionOptions options_;
  process::Fd socket_;
  std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context_{nullptr, SSL_CTX_free};
  // Null: without TLS.
  std::unique_ptr<SSL, decltype(&SSL_free)> tls_{nullptr, SSL_free};
};

}  // namespace muster::webhook

#endif  // MUSTER_COORDINATOR_WEBHOOK_CONNECTION_H_
