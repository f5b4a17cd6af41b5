#include "common/rpc/caller.h"

#include <memory>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace muster {
namespace {

// No property of a handshake begins like this, so a client cannot set them.
constexpr char kUid[] = "muster_uid";
constexpr char kName[] = "muster_name";
constexpr char kSerial[] = "muster_serial";

std::string Property(const grpc::AuthContext& connection, const char* name) {
  const std::vector<grpc::string_ref> values = connection.FindPropertyValues(name);
  return values.empty() ? "" : std::string(values.front().data(), values.front().size());
}

}  // namespace

std::string ToString(const Caller& caller) {
  switch (caller.kind) {
    case Caller::Kind::kInsecure:
      return caller.peer.empty() ? "an insecure connection"
                                 : absl::StrCat("an insecure connection from ", caller.peer);
    case Caller::Kind::kUser:
      return absl::StrCat("uid ", caller.uid);
    case Caller::Kind::kCertificate:
      return absl::CHexEscape(caller.name);
  }
  return "";
}

Caller CallerOf(const grpc::ServerContextBase& context) {
  Caller caller;
  const std::shared_ptr<const grpc::AuthContext> connection = context.auth_context();
  if (connection != nullptr) caller = IdentifiedCaller(*connection);
  caller.peer = PeerAddress(context.peer());
  return caller;
}

std::string PeerAddress(const std::string& peer) {
  const size_t colon = peer.find(':');
  const std::string scheme = peer.substr(0, colon);
  if (scheme != "ipv4" && scheme != "ipv6") return "";
  // gRPC writes the address as a part of a URI.
  std::string address =
      absl::StrReplaceAll(peer.substr(colon + 1), {{"%5B", "["}, {"%5D", "]"}, {"%25", "%"}});
  address = address.substr(0, address.rfind(':'));
  if (address.size() > 2 && address.front() == '[' && address.back() == ']') {
    address = address.substr(1, address.size() - 2);
  }
  return address;
}

bool IsIdentified(const grpc::AuthContext& connection) {
  return !connection.FindPropertyValues(kUid).empty() ||
         !connection.FindPropertyValues(kName).empty();
}

void Identify(const Caller& caller, grpc::AuthContext* connection) {
  if (caller.kind == Caller::Kind::kUser) {
    connection->AddProperty(kUid, absl::StrCat(caller.uid));
  } else if (caller.kind == Caller::Kind::kCertificate) {
    connection->AddProperty(kSerial, caller.serial);
    connection->AddProperty(kName, caller.name);
  }
}

Caller IdentifiedCaller(const grpc::AuthContext& connection) {
  Caller caller;
  if (!connection.FindPropertyValues(kName).empty()) {
    caller.kind = Caller::Kind::kCertificate;
    caller.name = Property(connection, kName);
    caller.serial = Property(connection, kSerial);
    return caller;
  }
  if (absl::SimpleAtoi(Property(connection, kUid), &caller.uid)) {
    caller.kind = Caller::Kind::kUser;
  }
  return caller;
}

}  // namespace muster
