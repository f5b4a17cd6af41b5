#include "common/rpc/address.h"

#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "common/files/files.h"
#include "common/files/private_directory.h"
#include "common/status/status.h"

namespace muster {
namespace {

constexpr char kUnix[] = "unix:";
constexpr char kAddressFile[] = "address";
constexpr char kSocket[] = "socket";
// The largest length of a path, without the zero at its end.
constexpr size_t kMostBytes = sizeof(sockaddr_un::sun_path) - 1;

absl::Status Wrong(const std::string& text) {
  return absl::InvalidArgumentError(absl::StrCat(
      "address '", text, "': expected HOST:PORT, unix:/PATH, or a coordinator's state directory"));
}

// FNV-1a: the same in every process and on every machine.
uint64_t Hash(const std::string& text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const unsigned char c : text) hash = (hash ^ c) * 0x100000001b3;
  return hash;
}

// Checks that nobody else can put a socket into $XDG_RUNTIME_DIR.
absl::Status OnlyThisUserWrites(const std::string& runtime) {
  struct stat found = {};
  std::string problem;
  if (stat(runtime.c_str(), &found) != 0) {
    problem = strerror(errno);
  } else if (!S_ISDIR(found.st_mode)) {
    problem = "it is no directory";
  } else if (found.st_uid != geteuid()) {
    problem = absl::StrCat("it belongs to the user ", found.st_uid, ", and this process runs as ",
                           geteuid());
  } else if ((found.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    problem = absl::StrFormat("others may write it (mode %04o)", found.st_mode & 07777);
  }
  if (problem.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "XDG_RUNTIME_DIR=", runtime, " cannot hold the coordinator's socket: ", problem,
      "; set it to a directory of this user with the mode 0700, or use a state directory with a "
      "shorter path"));
}

}  // namespace

bool IsLoopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host.rfind("127.", 0) == 0;
}

absl::StatusOr<Address> ParseAddress(const std::string& text) {
  absl::string_view rest = text;
  if (absl::ConsumePrefix(&rest, kUnix)) {
    if (rest.empty() || rest[0] != '/') {
      return absl::InvalidArgumentError(
          absl::StrCat("address '", text, "': the path of a Unix socket must begin with '/'"));
    }
    if (rest.size() > kMostBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("address '", text, "': the path has ", rest.size(),
                       " bytes; that of a Unix socket has at most ", kMostBytes));
    }
    return Address{.path = std::string(rest)};
  }
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0) return Wrong(text);
  Address address{.host = text.substr(0, colon)};
  const bool digits = text.find_first_not_of("0123456789", colon + 1) == std::string::npos;
  if (!digits || colon + 1 == text.size()) return Wrong(text);
  if (!absl::SimpleAtoi(text.substr(colon + 1), &address.port) || address.port > 65535) {
    return absl::InvalidArgumentError(
        absl::StrCat("address '", text, "': expected a port from 0 to 65535"));
  }
  const bool brackets = address.host.front() == '[' && address.host.back() == ']';
  if (brackets) address.host = address.host.substr(1, address.host.size() - 2);
  if (address.host.empty() || (!brackets && address.host.find(':') != std::string::npos)) {
    return Wrong(text);
  }
  return address;
}

std::string ToString(const Address& address) {
  if (address.local()) return kUnix + address.path;
  const bool v6 = address.host.find(':') != std::string::npos;
  return absl::StrCat(v6 ? "[" : "", address.host, v6 ? "]:" : ":", address.port);
}

absl::StatusOr<std::string> FindCoordinator(const std::string& text) {
  if (text.empty() || (text[0] != '/' && text[0] != '.')) {
    ASSIGN_OR_RETURN(const Address address, ParseAddress(text));
    return ToString(address);
  }
  const std::string directory = std::filesystem::absolute(text).lexically_normal().string();
  auto found = files::ReadFile(files::JoinPath(directory, kAddressFile));
  if (absl::IsNotFound(found.status())) {
    const std::string expected = files::JoinPath(directory, kSocket);
    if (expected.size() <= kMostBytes) return kUnix + expected;
    return absl::UnavailableError(absl::StrCat("no coordinator has run with the state directory ",
                                               text, " (it has no file '", kAddressFile,
                                               "'); `musterd --state ", text, "` starts one"));
  }
  if (absl::IsPermissionDenied(found.status())) {
    return absl::PermissionDeniedError(absl::StrCat(
        found.status().message(), "; run this as the user of musterd, or give an address ",
        "HOST:PORT"));
  }
  RETURN_IF_ERROR(found.status());
  ASSIGN_OR_RETURN(const Address address,
                   ParseAddress(std::string(absl::StripSuffix(*found, "\n"))));
  return ToString(address);
}

std::string DefaultStateDirectory(const Environment& environment) {
  std::string base = environment("XDG_STATE_HOME");
  if (base.empty()) {
    const std::string home = environment("HOME");
    if (home.empty()) return "";
    base = files::JoinPath(home, ".local/state");
  }
  return files::JoinPath(base, "muster");
}

bool SocketFits(const std::string& state_directory) {
  const std::string absolute =
      std::filesystem::absolute(state_directory).lexically_normal().string();
  return files::JoinPath(absolute, kSocket).size() <= kMostBytes;
}

absl::StatusOr<std::string> SocketPath(const std::string& state_directory,
                                       const Environment& environment) {
  const std::string own = files::JoinPath(state_directory, kSocket);
  if (own.size() <= kMostBytes) return own;
  const std::string runtime = environment("XDG_RUNTIME_DIR");
  const std::string other =
      runtime.empty()
          ? ""
          : files::JoinPath(runtime, absl::StrFormat("muster-%016x.%s", Hash(own), kSocket));
  if (!other.empty() && other.size() <= kMostBytes) {
    RETURN_IF_ERROR(OnlyThisUserWrites(runtime));
    return other;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      own, " has ", own.size(), " bytes, but the path of a Unix socket has at most ", kMostBytes,
      "; use a state directory with a shorter path, or set XDG_RUNTIME_DIR to a ",
      runtime.empty() ? "" : "shorter ", "directory that only this user can enter"));
}

absl::Status WriteAddress(const std::string& state_directory, const std::string& address) {
  const std::string path = files::JoinPath(state_directory, kAddressFile);
  const std::string content = address + "\n";
  // An unchanged file is not written again, because the disk may be full.
  if (const auto present = files::ReadFile(path); present.ok() && *present == content) {
    return absl::OkStatus();
  }
  return files::WritePrivately(path, content);
}

}  // namespace muster
