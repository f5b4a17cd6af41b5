// What musterd's flags say about webhooks.
#ifndef MUSTER_COORDINATOR_WEBHOOK_SETTINGS_H_
#define MUSTER_COORDINATOR_WEBHOOK_SETTINGS_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/webhook/url.h"

namespace muster::webhook {

// Each receiver has a thread, and messages of its own in the store.
inline constexpr size_t kMostReceivers = 8;

// Of the secret with which messages are signed. A shorter secret can be guessed.
inline constexpr size_t kShortestSecret = 16;
inline constexpr size_t kLongestSecret = 4096;

// As they are given.
struct Flags {
  // --webhook
  std::vector<std::string> urls;
  // --webhook-secret. Empty: messages are not signed.
  std::string secret_file;
  // --webhook-ca. Empty: the system's certificates are trusted.
  std::string ca_file;
};

struct Settings {
  std::vector<Url> receivers;
  std::string secret;
  std::string ca_file;
  // Of the requests.
  std::string user_agent;
};

// The secret: the contents of the file, without the line break at its end. Errors, each with what
// to do next: INVALID_ARGUMENT: the file is missing, no regular file, too short or too long;
// another user owns it, or others may read or write it. Other errors: the file system's.
absl::StatusOr<std::string> ReadSecret(const std::string& path);

// INVALID_ARGUMENT names the flag, what was expected and found, and what to do next: a URL that
// ParseUrl refuses, one that is given twice, too many, a flag that is of no use without --webhook,
// a secret that ReadSecret refuses, or a file without certificates. Other errors: those of the file
// system.
absl::StatusOr<Settings> ReadSettings(const Flags& flags, const std::string& user_agent);

}  // namespace muster::webhook

#endif  // MUSTER_COORDINATOR_WEBHOOK_SETTINGS_H_
