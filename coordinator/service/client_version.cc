#include "coordinator/service/client_version.h"

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "coordinator/membership/refusal.h"

namespace muster::service {
namespace {

struct MinorVersion {
  uint32_t major = 0;
  uint32_t minor = 0;
};

std::optional<MinorVersion> Parse(absl::string_view version) {
  const std::vector<absl::string_view> parts = absl::StrSplit(version, '.');
  MinorVersion parsed;
  if (parts.size() < 2 || !absl::SimpleAtoi(parts[0], &parsed.major) ||
      !absl::SimpleAtoi(parts[1], &parsed.minor)) {
    return std::nullopt;
  }
  return parsed;
}

std::string TooFarApart(const std::string& client, const std::string& own) {
  return absl::StrCat("the client has version ", client, " and the coordinator has version ", own,
                      "; they may be one minor version apart: update ");
}

}  // namespace

absl::Status CheckClientVersion(const std::string& user_agent, const std::string& own) {
  absl::string_view rest = user_agent;
  if (!absl::ConsumePrefix(&rest, "muster/")) return absl::OkStatus();
  const std::string version(rest.substr(0, rest.find(' ')));
  const std::optional<MinorVersion> client = Parse(version);
  const std::optional<MinorVersion> coordinator = Parse(own);
  if (!client.has_value() || !coordinator.has_value()) return absl::OkStatus();
  const auto older = [](const MinorVersion& a, const MinorVersion& b) {
    return a.major < b.major || (a.major == b.major && a.minor + 1 < b.minor);
  };
  const About about = {{"client", version}, {"coordinator", own}};
  if (older(*client, *coordinator)) {
    return Refuse(absl::StatusCode::kFailedPrecondition, "CLIENT_TOO_OLD",
                  TooFarApart(version, own) + "the client", about);
  }
  if (older(*coordinator, *client)) {
    return Refuse(absl::StatusCode::kFailedPrecondition, "CLIENT_TOO_NEW",
                  TooFarApart(version, own) + "the coordinator", about);
  }
  return absl::OkStatus();
}

}  // namespace muster::service
