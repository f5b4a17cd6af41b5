// Posts messages over HTTP, with or without TLS (cpp-httplib).
//
// Redirects are not followed, proxies of the environment are not used, and the body of an answer is
// ignored. With TLS (1.2 or newer) the receiver's certificate must be valid for the URL's host.
#ifndef MUSTER_COORDINATOR_WEBHOOK_HTTP_POSTER_H_
#define MUSTER_COORDINATOR_WEBHOOK_HTTP_POSTER_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/time/time.h"
#include "coordinator/store/store.h"
#include "coordinator/webhook/answer.h"
#include "coordinator/webhook/poster.h"
#include "coordinator/webhook/resolver.h"
#include "coordinator/webhook/socket_limit.h"
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
  // The signature's time.
  std::function<absl::Time()> date = absl::Now;
};

class HttpPoster : public Poster {
 public:
  explicit HttpPoster(HttpPosterOptions options);

  Answer Post(const store::DeliveryRow& message) override;
  void Abort() override;

 private:
  Answer PostTo(const std::string& address, const store::DeliveryRow& message);

  const HttpPosterOptions options_;
  Resolver resolver_;
  SocketLimit limit_;
};

}  // namespace muster::webhook

#endif  // MUSTER_COORDINATOR_WEBHOOK_HTTP_POSTER_H_
