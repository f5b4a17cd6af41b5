// musterd's flags about webhooks, and their meaning.
#ifndef MUSTER_COORDINATOR_WEBHOOK_SETTINGS_H_
#define MUSTER_COORDINATOR_WEBHOOK_SETTINGS_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/webhook/url.h"

namespace muster::webhook {

// The most receivers. Each receiver has a thread, and its own messages in the store.
inline constexpr size_t kMostReceivers = 8;

// The length of the secret that signs messages, in bytes. A shorter secret can be guessed.
inline constexpr size_t kShortestSecret = 16;
inline constexpr size_t kLongestSecret = 4096;

// The flags as they are given.
struct Flags {
  // --webhook
  std::vector<std::string> urls;
  // --webhook-secret. If empty, messages are not signed.
  std::string secret_file;
  // --webhook-ca. If empty, the system's certificates are trusted.
  std::string ca_file;
};

struct Settings {
  std::vector<Url> receivers;
  std::string secret;
  std::string ca_file;
  // The user agent of the requests.
  std::string user_agent;
};

// Returns the secret: the contents of the file, without the line break at its end. Each error says
// what to do next. INVALID_ARGUMENT: the file is missing, no regular file, too short or too long;
// another user owns it, or others may read or write it. Other errors: the file system's.
absl::StatusOr<std::string> ReadSecret(const std::string& path);

// INVALID_ARGUMENT names the flag, the expected and found values, and what to do next. Its causes:
// a URL that ParseUrl refuses, a repeated URL, or too many URLs; a flag that needs --webhook; a
// secret that ReadSecret refuses; a file without certificates. Other errors: those of the file
// system.
absl::StatusOr<Settings> ReadSettings(const Flags& flags, const std::string& user_agent);

}  // namespace muster::webhook

#endif  // MUSTER_COORDINATOR_WEBHOOK_SETTINGS_H_
