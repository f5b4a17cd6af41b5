#include "common/certs/subject.h"

#include <algorithm>
#include <cctype>
#include <map>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/status/status.h"

namespace muster::certs {
namespace {

// ub-common-name of RFC 5280.
constexpr size_t kMaxCommonName = 64;

const std::map<std::string, Role>& Roles() {
  static const auto& roles = *new std::map<std::string, Role>{
      {"coordinator", Role::kCoordinator}, {"reader", Role::kReader},
      {"operator", Role::kOperator},       {"agent", Role::kAgent},
      {"worker", Role::kWorker},
  };
  return roles;
}

bool IsNameCharacter(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '_' || c == '-';
}

}  // namespace

std::string ToString(Role role) {
  for (const auto& [name, one] : Roles()) {
    if (one == role) return name;
  }
  return "";
}

absl::StatusOr<Role> ParseRole(const std::string& text) {
  const auto found = Roles().find(text);
  if (found != Roles().end()) return found->second;
  return absl::InvalidArgumentError(
      absl::StrCat("'", absl::CHexEscape(text),
                   "' is not a role; there are coordinator, operator, reader, agent and worker"));
}

std::string ToString(const Subject& subject) {
  return absl::StrCat(ToString(subject.role), "/", subject.name);
}

absl::StatusOr<Subject> ParseSubject(const std::string& common_name) {
  const auto refused = [&](const std::string& why) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", absl::CHexEscape(common_name),
                     "' is not ROLE/NAME, such as operator/alice or agent/node1: ", why));
  };
  if (common_name.size() > kMaxCommonName) {
    return refused(
        absl::StrCat("it has ", common_name.size(), " characters; X.509 allows ", kMaxCommonName));
  }
  const size_t slash = common_name.find('/');
  if (slash == std::string::npos) return refused("there is no '/'");
  Subject subject;
  const auto role = ParseRole(common_name.substr(0, slash));
  if (!role.ok()) return refused(Message(role.status()));
  subject.role = *role;
  subject.name = common_name.substr(slash + 1);
  if (subject.name.empty()) return refused("the name is empty");
  if (!std::all_of(subject.name.begin(), subject.name.end(), IsNameCharacter)) {
    return refused("a name is of letters, digits, '.', '_' and '-'");
  }
  if (std::isalnum(static_cast<unsigned char>(subject.name.front())) == 0) {
    return refused("a name begins with a letter or a digit");
  }
  return subject;
}

}  // namespace muster::certs
