#include "worker/agent/state_directory.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/files/files.h"

namespace muster::agent {
namespace {

constexpr char kSystem[] = "/var/lib/muster";

}  // namespace

std::string DefaultStateDirectory(const std::string& node, const std::string& coordinator,
                                  const std::map<std::string, std::string>& environment,
                                  const std::function<bool(const std::string& directory)>& has_id) {
  const auto value = [&](const std::string& name) {
    const auto found = environment.find(name);
    return found == environment.end() ? std::string() : found->second;
  };
  std::string name = absl::StrCat("agent-", node, "-", coordinator);
  std::replace_if(
      name.begin(), name.end(), [](char c) { return c == '/' || c == ':'; }, '-');

  std::string of_user = value("XDG_STATE_HOME");
  if (of_user.empty() && !value("HOME").empty()) {
    of_user = files::JoinPath(value("HOME"), ".local/state");
  }
  if (!of_user.empty()) of_user = files::JoinPath(of_user, files::JoinPath("muster", name));

  // systemd separates several directories by colons.
  const std::string all = value("STATE_DIRECTORY");
  const std::string of_unit = all.substr(0, all.find(':'));
  if (!of_unit.empty() && (of_user.empty() || !has_id(of_user))) {
    return files::JoinPath(of_unit, name);
  }
  return of_user.empty() ? files::JoinPath(kSystem, name) : of_user;
}

}  // namespace muster::agent
