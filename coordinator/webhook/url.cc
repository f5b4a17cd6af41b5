#include "coordinator/webhook/url.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/status/status.h"

namespace muster::webhook {
namespace {

constexpr uint16_t kHttpPort = 80;
constexpr uint16_t kHttpsPort = 443;

absl::Status Wrong(const std::string& expected, const std::string& found) {
  return absl::InvalidArgumentError(absl::StrCat("expected ", expected, ", found ", found));
}

bool IsHostCharacter(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '-' || c == '_';
}

bool IsAddressCharacter(char c) {
  return absl::ascii_isxdigit(static_cast<unsigned char>(c)) || c == ':' || c == '.';
}

bool All(const std::string& text, bool (*is)(char)) {
  return !text.empty() && std::all_of(text.begin(), text.end(), is);
}

// Removes and returns the host from the front of HOST[:PORT].
absl::StatusOr<std::string> TakeHost(std::string* authority) {
  std::string host;
  if (absl::StartsWith(*authority, "[")) {
    const size_t end = authority->find(']');
    host = authority->substr(1, end == std::string::npos ? end : end - 1);
    if (end == std::string::npos || !All(host, IsAddressCharacter)) {
      return Wrong("an IPv6 address in brackets", absl::StrCat("'", *authority, "'"));
    }
    authority->erase(0, end + 1);
  } else {
    host = authority->substr(0, authority->find(':'));
    if (!All(host, IsHostCharacter)) {
      return Wrong("the name or the address of a host", absl::StrCat("'", host, "'"));
    }
    authority->erase(0, host.size());
  }
  return host;
}

}  // namespace

absl::StatusOr<Url> ParseUrl(const std::string& text) {
  if (text.size() > kLongestUrl) {
    return Wrong(absl::StrCat("a URL of at most ", kLongestUrl, " bytes"),
                 absl::StrCat(text.size(), " bytes"));
  }
  const auto is_plain = [](char c) { return c > 0x20 && c < 0x7f && c != '"' && c != '\\'; };
  if (!std::all_of(text.begin(), text.end(), is_plain)) {
    return Wrong("a URL of visible ASCII characters", "another one; encode it as %XX");
  }
  Url url{.text = text};
  const size_t colon = text.find("://");
  const std::string scheme =
      absl::AsciiStrToLower(text.substr(0, colon == std::string::npos ? 0 : colon));
  if (scheme != "http" && scheme != "https") {
    return Wrong(
        "a URL that begins with http:// or https://",
        scheme.empty() ? "one without a scheme" : absl::StrCat("the scheme '", scheme, "'"));
  }
  url.tls = scheme == "https";
  std::string rest = text.substr(colon + 3);
  if (rest.find('#') != std::string::npos) return Wrong("a URL without a fragment", "a '#' in it");
  const size_t path = std::min(rest.find_first_of("/?"), rest.size());
  std::string authority = rest.substr(0, path);
  url.target = rest.substr(path);
  if (!absl::StartsWith(url.target, "/")) url.target = "/" + url.target;
  if (authority.find('@') != std::string::npos) {
    return Wrong("a URL without a user and a password",
                 "a '@' before its path; receivers check the signature (--webhook-secret)");
  }
  ASSIGN_OR_RETURN(url.host, TakeHost(&authority));
  url.port = url.tls ? kHttpsPort : kHttpPort;
  if (authority.empty()) return url;
  uint32_t port = 0;
  if (authority[0] != ':' || !absl::SimpleAtoi(authority.substr(1), &port) || port < 1 ||
      port > 65535) {
    return Wrong("a port from 1 to 65535 after the host", absl::StrCat("'", authority, "'"));
  }
  url.port = static_cast<uint16_t>(port);
  return url;
}

bool IsAddress(const std::string& host) {
  std::array<unsigned char, sizeof(in6_addr)> bytes;
  return inet_pton(AF_INET, host.c_str(), bytes.data()) == 1 ||
         inet_pton(AF_INET6, host.c_str(), bytes.data()) == 1;
}

std::string HostHeader(const Url& url) {
  const bool is_v6 = url.host.find(':') != std::string::npos;
  const std::string host = is_v6 ? absl::StrCat("[", url.host, "]") : url.host;
  const bool usual = url.port == (url.tls ? kHttpsPort : kHttpPort);
  return usual ? host : absl::StrCat(host, ":", url.port);
}

std::string Shown(const Url& url) {
  return absl::StrCat(url.tls ? "https" : "http", "://", HostHeader(url));
}

std::vector<std::string> ShownApart(const std::vector<Url>& urls) {
  std::vector<std::string> all;
  for (size_t i = 0; i < urls.size(); ++i) {
    const std::string shown = Shown(urls[i]);
    const auto looks_so = [&shown](const Url& url) { return Shown(url) == shown; };
    const bool alone = std::count_if(urls.begin(), urls.end(), looks_so) == 1;
    all.push_back(alone ? shown : absl::StrCat(shown, " (--webhook ", i + 1, ")"));
  }
  return all;
}

}  // namespace muster::webhook
