#include "coordinator/webhook/http_poster.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/secret/secret.h"
#include "common/status/status.h"

namespace muster::webhook {
namespace {

constexpr size_t kMostAddresses = 4;

}  // namespace

std::string Sign(const std::string& secret, int64_t unix_seconds, const std::string& body) {
  const std::string text = absl::StrCat(unix_seconds, ".", body);
  return absl::StrCat("v1=", secret::ToHex(secret::Hmac(secret, text)));
}

HttpPoster::HttpPoster(HttpPosterOptions options)
    : options_(std::move(options)), resolver_(options_.url.host, {.look_up = options_.look_up}) {}

void HttpPoster::Abort() {
  resolver_.Abort();
  transfer_.Abort();
}

Answer HttpPoster::Post(const store::DeliveryRow& message) {
  const auto addresses = resolver_.Resolve(options_.connect_wait);
  if (!addresses.ok()) return {.trouble = Message(addresses.status())};
  Response response = {.trouble =
                           absl::StrCat("the host '", options_.url.host, "' has no address")};
  for (size_t i = 0; i < std::min(addresses->size(), kMostAddresses); ++i) {
    if (transfer_.is_aborted()) return {.trouble = "aborted"};
    response = transfer_.Post({.options = options_,
                               .address = (*addresses)[i],
                               .headers = HeadersOf(message),
                               .body = message.body});
    if (response.sent) break;
  }
  return {.status = response.status,
          .trouble = response.trouble,
          .retry_after = ParseRetryAfter(response.retry_after, options_.date())};
}

std::vector<std::string> HttpPoster::HeadersOf(const store::DeliveryRow& message) const {
  std::vector<std::string> headers = {absl::StrCat("User-Agent: ", options_.user_agent),
                                      "Accept-Encoding: identity", "Content-Type: application/json",
                                      absl::StrCat("Muster-Delivery: ", message.id)};
  if (!options_.secret.empty()) {
    const int64_t now = absl::ToUnixSeconds(options_.date());
    headers.push_back(absl::StrCat("Muster-Timestamp: ", now));
    headers.push_back(absl::StrCat("Muster-Signature: ", Sign(options_.secret, now, message.body)));
  }
  return headers;
}

}  // namespace muster::webhook
