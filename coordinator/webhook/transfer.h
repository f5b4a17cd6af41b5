// One HTTP/1.1 POST to one address of a receiver, through libcurl.
//
// Redirects are not followed, proxies of the environment are not used, and no connection is used
// twice. With TLS (1.2 or newer) the receiver's certificate must be valid for the URL's host. A
// receiver may answer anything: the head is limited to kMostOfHead, and one line to 100 KB.
#ifndef MUSTER_COORDINATOR_WEBHOOK_TRANSFER_H_
#define MUSTER_COORDINATOR_WEBHOOK_TRANSFER_H_

#include <curl/curl.h>

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "coordinator/webhook/resolver.h"
#include "coordinator/webhook/url.h"

namespace muster::webhook {

struct HttpPosterOptions {
  Url url;
  // The secret that signs the messages. If empty, they are not signed.
  std::string secret;
  // A file of PEM certificates that are trusted instead of the system's. If empty, the system's
  // are.
  std::string ca_file;
  std::string user_agent;
  // The limit of the host's lookup, and of each wait for the connection to an address, including
  // TLS.
  absl::Duration connect_wait = absl::Seconds(5);
  // The limit of each later wait.
  absl::Duration answer_wait = absl::Seconds(5);
  // The limit of everything at one address.
  absl::Duration limit = absl::Seconds(15);
  // The longest single wait for libcurl's sockets. Its end only lets Post() see Abort() if libcurl
  // had no file descriptor left to wake it.
  absl::Duration longest_poll = absl::Seconds(1);
  // The clock for the signature's time.
  std::function<absl::Time()> date = absl::Now;
  // The lookup of the host's addresses.
  LookUp look_up = SystemLookUp;
};

struct Request {
  const HttpPosterOptions& options;
  // A numeric address of the host. The host's name is not looked up here.
  std::string address;
  // Lines "Name: value", besides the headers that say how the body is sent.
  std::vector<std::string> headers;
  absl::string_view body;
};

struct Response {
  // The HTTP status; 0 if there was no answer.
  int status = 0;
  // The reason why there is no status, for people: one line, without control characters.
  std::string trouble;
  // The value of the first header Retry-After; empty if there is none.
  std::string retry_after;
  // Whether a part of the request was sent, or may have been sent.
  bool sent = false;
};

// The transport to one receiver. libcurl's multi handle has one transfer at a time.
class Transfer {
 public:
  // The most bytes of an answer's status line and headers, including interim answers before it. A
  // longer head is no HTTP answer.
  static constexpr size_t kMostOfHead = 16 << 10;

  Transfer();

  // Posts the request. One call at a time.
  Response Post(const Request& request);
  // Ends the current call and all later calls at once. Thread-safe.
  void Abort();
  bool is_aborted() const { return aborted_; }

 private:
  std::atomic<bool> aborted_ = false;
  // The handle for all calls, because another thread wakes it. Null if libcurl cannot be used.
  const std::unique_ptr<CURLM, decltype(&curl_multi_cleanup)> multi_;
};

}  // namespace muster::webhook

#endif  // MUSTER_COORDINATOR_WEBHOOK_TRANSFER_H_
