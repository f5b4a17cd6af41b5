// A Poster over HTTP/1.1, with or without TLS.
//
// Redirects are not followed, proxies of the environment are not used, and the body of an answer is
// ignored. With TLS (1.2 or newer) the receiver's certificate must be valid for the URL's host.
#ifndef MUSTER_COORDINATOR_WEBHOOK_HTTP_POSTER_H_
#define MUSTER_COORDINATOR_WEBHOOK_HTTP_POSTER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "coordinator/store/store.h"
#include "coordinator/webhook/answer.h"
#include "coordinator/webhook/resolver.h"
#include "coordinator/webhook/transfer.h"

namespace muster::webhook {

// Returns the signature by which a receiver recognises a message of this musterd
// (docs/how-to/webhook.md): "v1=" and the 64 hexadecimal digits of HMAC-SHA-256(secret,
// "SECONDS.BODY"). Stripe and Slack sign in this way, too.
std::string Sign(const std::string& secret, int64_t unix_seconds, const std::string& body);

class HttpPoster : public Poster {
 public:
  explicit HttpPoster(HttpPosterOptions options);

  // Posts to the host's addresses in turn. Tries the next address only if nothing of the message
  // was sent to the address before: there was no connection, or no TLS.
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
