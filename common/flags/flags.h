// Command-line flags of several programs: --tls-certificate, --tls-key and --tls-ca, which every
// program has that speaks over TCP, and durations ("90s", "1h30m").
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

// Of the three files, in the order of their members: the environment variables that name them where
// an option is not given, and by which an agent names them to its workers.
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

// Adds the options; `files` has their values, and first those that count without them.
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

// The value of `flag`. INVALID_ARGUMENT names the flag, its text and the range: it is not a
// duration, or is outside of the range (both ends are allowed).
absl::StatusOr<absl::Duration> ParseDurationFlag(const std::string& flag, const std::string& text,
                                                 absl::Duration least, absl::Duration most);

}  // namespace muster

#endif  // MUSTER_COMMON_FLAGS_FLAGS_H_
