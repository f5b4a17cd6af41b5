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
  // The host: a name or an address, without the brackets of an IPv6 address.
  std::string host;
  uint16_t port = 0;
  // The path and the query; at least "/".
  std::string target;
  // The URL as it was given.
  std::string text;

  bool operator==(const Url&) const = default;
};

// The most bytes of a URL.
inline constexpr size_t kLongestUrl = 2000;

// Parses a URL. INVALID_ARGUMENT if musterd cannot post to it; the message says what was expected
// and found.
absl::StatusOr<Url> ParseUrl(const std::string& text);

// Returns whether the host is a numeric address, IPv4 or IPv6 (without brackets).
bool IsAddress(const std::string& host);

// Returns the value of the header `Host`, without the port if it is the scheme's default.
std::string HostHeader(const Url& url);

// Returns the URL for messages, without the path and the query, which may contain a secret.
std::string Shown(const Url& url);
// Returns Shown of each URL. Equal results are numbered by their position among all URLs, as in
// "https://host (--webhook 2)".
std::vector<std::string> ShownApart(const std::vector<Url>& urls);

}  // namespace muster::webhook

#endif  // MUSTER_COORDINATOR_WEBHOOK_URL_H_
