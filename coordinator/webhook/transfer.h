// Posts to one address of a receiver over HTTP/1.1, through libcurl.
//
// Redirects are not followed, proxies of the environment are not used, and no connection is used
// twice. With TLS (1.2 or newer) the receiver's certificate must be valid for the URL's host. A
// receiver may answer anything: no more is kept than kMostOfHead, and one line of at most 100 KB.
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
  // Signs the messages. Empty: they are not signed.
  std::string secret;
  // PEM certificates that are trusted instead of the system's. Empty: the system's.
  std::string ca_file;
  std::string user_agent;
  // For the lookup of the host, and the limit of each wait until there is a connection to an
  // address, with TLS if the URL asks for it.
  absl::Duration connect_wait = absl::Seconds(5);
  // The limit of each wait after that.
  absl::Duration answer_wait = absl::Seconds(5);
  // For all that happens at one address.
  absl::Duration limit = absl::Seconds(15);
  // The limit of each wait for libcurl's sockets, whose end changes nothing: the time after which
  // Abort() is seen if libcurl had no file descriptor left to be woken by.
  absl::Duration longest_poll = absl::Seconds(1);
  // The signature's time.
  std::function<absl::Time()> date = absl::Now;
  // Finds the addresses of the host.
  LookUp look_up = SystemLookUp;
};

struct Request {
  const HttpPosterOptions& options;
  // An address of the host, as a number: the host's name is not looked up here.
  std::string address;
  // Lines "Name: value", beside the headers that say how the body is sent.
  std::vector<std::string> headers;
  absl::string_view body;
};

struct Response {
  // The status of HTTP. 0: there was no answer.
  int status = 0;
  // The reason why there is no status, for people: one line, without control characters.
  std::string trouble;
  // The value of the first header Retry-After. Empty: there is none.
  std::string retry_after;
  // Whether a part of the request was sent, or may have been.
  bool sent = false;
};

// The transport to one receiver. The multi handle of libcurl has one transfer at a time.
class Transfer {
 public:
  // The most bytes of the status line and all headers, with those of interim answers before it. A
  // longer head is no HTTP answer.
  static constexpr size_t kMostOfHead = 16 << 10;

  Transfer();

  // There may be one call at a time.
  Response Post(const Request& request);
  // Thread-safe: ends the call that is under way, and all later ones, at once.
  void Abort();
  bool is_aborted() const { return aborted_; }

 private:
  std::atomic<bool> aborted_ = false;
  // The handle lasts for all calls, because another thread wakes it. Null: libcurl cannot be used.
  const std::unique_ptr<CURLM, decltype(&curl_multi_cleanup)> multi_;
};

}  // namespace muster::webhook

#endif  // MUSTER_COORDINATOR_WEBHOOK_TRANSFER_H_
