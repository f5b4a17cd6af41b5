// How a receiver can tell that a message is from this musterd (docs/webhook.md): HMAC-SHA-256 over
// the time and the body, as Stripe and Slack sign theirs.
#ifndef MUSTER_COORDINATOR_WEBHOOK_SIGNATURE_H_
#define MUSTER_COORDINATOR_WEBHOOK_SIGNATURE_H_

#include <cstdint>
#include <string>

namespace muster::webhook {

// "v1=" and the 64 hexadecimal digits of HMAC-SHA-256(secret, "SECONDS.BODY").
std::string Sign(const std::string& secret, int64_t unix_seconds, const std::string& body);

}  // namespace muster::webhook

#endif  // MUSTER_COORDINATOR_WEBHOOK_SIGNATURE_H_
