// The URL of a webhook's receiver.
#ifndef MUSTER_COORDINATOR_WEBHOOK_URL_H_
#define MUSTER_COORDINATOR_WEBHOOK_URL_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace muster::webhook {

struct Url {
  bool tls = false;
  // A name or an address, without the brackets of an IPv6 address.
  std::string host;
  uint16_t port = 0;
  // The path and the query; at least "/".
  std::string target;
  // As it was given.
  std::string text;

  bool operator==(const Url&) const = default;
};

// Longer ones are refused.
inline constexpr size_t kLongestUrl = 2000;

// INVALID_ARGUMENT: the text is no URL that musterd can post to; the message says what was expected
// and found.
absl::StatusOr<Url> ParseUrl(const std::string& text);

// Whether the host is not a name but the number of an address, IPv4 or IPv6 (without brackets).
bool IsAddress(const std::string& host);

// The value of the header `Host`: the port is left out if it is that of the scheme.
std::string HostHeader(const Url& url);

// For messages: without the path and the query, which may contain a secret.
std::string Shown(const Url& url);
// The same for each of these URLs. Those that look the same get their number among all of them, as
// in "https://host (--webhook 2)".
std::vector<std::string> ShownApart(const std::vector<Url>& urls);

}  // namespace muster::webhook

#endif  // MUSTER_COORDINATOR_WEBHOOK_URL_H_
