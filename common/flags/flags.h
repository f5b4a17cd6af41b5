// Command-line flags of several programs: durations ("90s", "1h30m"), and --tls-certificate,
// --tls-key and --tls-ca for the programs that use TCP.
#ifndef MUSTER_COMMON_FLAGS_FLAGS_H_
#define MUSTER_COMMON_FLAGS_FLAGS_H_

#include <CLI/CLI.hpp>
#include <functional>
#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/certs/tls_files.h"

namespace muster {

// The environment variables of the three files, in the order of their members. They count if an
// option is not given. An agent names the files to its workers by them.
inline constexpr char kTlsCertificateVariable[] = "MUSTER_TLS_CERTIFICATE";
inline constexpr char kTlsKeyVariable[] = "MUSTER_TLS_KEY";
inline constexpr char kTlsCaVariable[] = "MUSTER_TLS_CA";

// The files that the environment names; a variable that is not set is an empty text.
inline certs::TlsFiles TlsFilesOf(const std::function<std::string(const std::string&)>& variable) {
  return {.certificate = variable(kTlsCertificateVariable),
          .key = variable(kTlsKeyVariable),
          .ca = variable(kTlsCaVariable)};
}

inline std::map<std::string, std::string> ToEnvironment(const certs::TlsFiles& files) {
  if (files.certificate.empty()) return {};
  return {{kTlsCertificateVariable, files.certificate},
          {kTlsKeyVariable, files.key},
          {kTlsCaVariable, files.ca}};
}

// Adds the options. `files` gets their values, and has the values that count without options.
inline void AddTlsOptions(CLI::App* app, certs::TlsFiles* files) {
  app->add_option("--tls-certificate", files->certificate,
                  "For connections over TCP: the file of this program's certificate; default "
                  "$MUSTER_TLS_CERTIFICATE (`muster certs` makes such files)")
      ->type_name("FILE");
  app->add_option("--tls-key", files->key, "The file of its key; default $MUSTER_TLS_KEY")
      ->type_name("FILE");
  app->add_option(
         "--tls-ca", files->ca,
         "The file of the certificates of the CAs that are trusted; default $MUSTER_TLS_CA")
      ->type_name("FILE");
}

// The value of `flag`. INVALID_ARGUMENT: the text is not a duration, or is outside of the range
// (both ends are allowed). The message names the flag, its text and the range.
absl::StatusOr<absl::Duration> ParseDurationFlag(const std::string& flag, const std::string& text,
                                                 absl::Duration least, absl::Duration most);

}  // namespace muster

#endif  // MUSTER_COMMON_FLAGS_FLAGS_H_
