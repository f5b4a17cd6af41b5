// Posts messages over HTTP/1.1, with or without TLS.
//
// Redirects are not followed, proxies of the environment are not used, and the body of an answer is
// ignored. With TLS (1.2 or newer) the receiver's certificate must be valid for the URL's host.
#ifndef MUSTER_COORDINATOR_WEBHOOK_HTTP_POSTER_H_
#define MUSTER_COORDINATOR_WEBHOOK_HTTP_POSTER_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "coordinator/store/store.h"
#include "coordinator/webhook/answer.h"
#include "coordinator/webhook/poster.h"
#include "coordinator/webhook/resolver.h"
#include "coordinator/webhook/transfer.h"
#include "coordinator/webhook/url.h"

namespace muster::webhook {

struct HttpPosterOptions {
  Url url;
  // Signs the messages. Empty: they are not signed.
  std::string secret;
  // PEM certificates that are trusted instead of the system's. Empty: the system's.
  std::string ca_file;
  std::string user_agent;
  // For the lookup of the host, and for the connection to each address.
  absl::Duration connect_wait = absl::Seconds(5);
  // For each read and write.
  absl::Duration answer_wait = absl::Seconds(5);
  // For all that happens at one address.
  absl::Duration limit = absl::Seconds(15);
  // The time after which Abort() is seen if libcurl had no file descriptor left to be woken by.
  absl::Duration longest_poll = absl::Seconds(1);
  // The signature's time.
  std::function<absl::Time()> date = absl::Now;
  // Finds the addresses of the host.
  LookUp look_up = SystemLookUp;
};

class HttpPoster : public Poster {
 public:
  explicit HttpPoster(HttpPosterOptions options);

  // Tries the next address of the host only if nothing of the message was sent to the one before:
  // there was no connection, or no TLS.
  Answer Post(const store::DeliveryRow& message) override;
  void Abort() override;

 private:
  std::vector<std::string> HeadersOf(const store::DeliveryRow& message) const;

  const HttpPosterOptions options_;
  Resolver resolver_;
  Transfer transfer_;
};

}  // namespace muster::webhook

#endif  // MUSTER_COORDINATOR_WEBHOOK_HTTP_POSTER_H_
