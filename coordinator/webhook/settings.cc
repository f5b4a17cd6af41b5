#include "coordinator/webhook/settings.h"

#include <openssl/ssl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/files/disk.h"
#include "common/files/files.h"
#include "common/status/status.h"

namespace muster::webhook {
namespace {

constexpr char kUrlFlag[] = "--webhook";
constexpr char kSecretFlag[] = "--webhook-secret";
constexpr char kCaFlag[] = "--webhook-ca";

// Returns an error about `what`, a flag or a file.
absl::Status Wrong(const std::string& what, const std::string& why) {
  return absl::InvalidArgumentError(absl::StrCat(what, ": ", why));
}

// Checks that the file has certificates that OpenSSL can use.
absl::Status CheckCertificates(const std::string& path) {
  RETURN_IF_ERROR(files::ReadFile(path).status());
  const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context(SSL_CTX_new(TLS_client_method()),
                                                                  SSL_CTX_free);
  if (SSL_CTX_load_verify_locations(context.get(), path.c_str(), nullptr) == 1) {
    return absl::OkStatus();
  }
  return Wrong(path, "expected certificates in PEM format, found something else");
}

}  // namespace

absl::StatusOr<std::string> ReadSecret(const std::string& path) {
  struct stat found = {};
  if (stat(path.c_str(), &found) != 0) {
    if (errno != ENOENT) return files::ErrnoStatus(errno, "look at", path);
    return Wrong(path,
                 "expected a file with the secret, found none; make one: "
                 "(umask 077; openssl rand -hex 32 >FILE)");
  }
  if (!S_ISREG(found.st_mode)) return Wrong(path, "expected a regular file, found something else");
  if (found.st_uid != geteuid() && found.st_uid != 0) {
    return Wrong(path, absl::StrCat("expected a file of the user ", geteuid(),
                                    " or of root, found one of the user ", found.st_uid,
                                    ", who knows the secret; make another file"));
  }
  if ((found.st_mode & 0077) != 0) {
    return Wrong(path, absl::StrFormat("expected the mode 0600 or 0400, found %04o: others can "
                                       "read the secret; make a new secret and chmod 600",
                                       found.st_mode & 07777));
  }
  if (found.st_size > kLongestSecret) {
    return Wrong(path, absl::StrCat("expected a secret of at most ", kLongestSecret,
                                    " bytes, found ", found.st_size));
  }
  ASSIGN_OR_RETURN(std::string secret, files::ReadFile(path));
  while (!secret.empty() && (secret.back() == '\n' || secret.back() == '\r')) secret.pop_back();
  if (secret.size() < kShortestSecret) {
    return Wrong(path,
                 absl::StrCat("expected a secret of at least ", kShortestSecret, " bytes, found ",
                              secret.size(), "; make one with: openssl rand -hex 32"));
  }
  return secret;
}

absl::StatusOr<Settings> ReadSettings(const Flags& flags, const std::string& user_agent) {
  Settings settings = {.ca_file = flags.ca_file, .user_agent = user_agent};
  if (flags.urls.size() > kMostReceivers) {
    return Wrong(kUrlFlag, absl::StrCat("expected at most ", kMostReceivers, " of them, found ",
                                        flags.urls.size()));
  }
  for (const std::string& text : flags.urls) {
    auto url = ParseUrl(text);
    if (!url.ok()) return Annotate(url.status(), kUrlFlag);
    const auto is_it = [&](const Url& other) { return other.text == url->text; };
    if (std::any_of(settings.receivers.begin(), settings.receivers.end(), is_it)) {
      return Wrong(kUrlFlag,
                   absl::StrCat("expected different URLs, found one twice, of ", Shown(*url)));
    }
    settings.receivers.push_back(*std::move(url));
  }
  const auto tls = [](const Url& url) { return url.tls; };
  const bool any_tls = std::any_of(settings.receivers.begin(), settings.receivers.end(), tls);
  if (settings.receivers.empty() && !flags.secret_file.empty()) {
    return Wrong(kSecretFlag, "expected also --webhook URL, found none");
  }
  if (!any_tls && !flags.ca_file.empty()) {
    return Wrong(kCaFlag, "expected also --webhook with an https URL, found none");
  }
  if (!flags.secret_file.empty()) {
    auto secret = ReadSecret(flags.secret_file);
    if (!secret.ok()) return Annotate(secret.status(), kSecretFlag);
    settings.secret = *std::move(secret);
  }
  if (!flags.ca_file.empty()) {
    const absl::Status certificates = CheckCertificates(flags.ca_file);
    if (!certificates.ok()) return Annotate(certificates, kCaFlag);
  }
  return settings;
}

}  // namespace muster::webhook
