// Receives the file that an operation wrote for this client (`--download`).
#ifndef MUSTER_CLIENT_CLI_DOWNLOAD_H_
#define MUSTER_CLIENT_CLI_DOWNLOAD_H_

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "client/api/client.h"
#include "client/cli/command.h"
#include "client/cli/terminal/console.h"
#include "client/cli/terminal/exit_code.h"
#include "client/files/partial_file.h"
#include "proto/muster/v1/operation.pb.h"

namespace muster::cli {

struct DownloadTarget {
  std::string path;  // absolute
  client::Existing existing = client::Existing::kKeep;
};

// Returns the target for a path and --overwrite as the user gives them.
DownloadTarget TargetOf(const std::string& path, bool overwrite);

// "received 12% of 1.2 GB, 34 MB/s, 31s left". `begun`: the bytes that were there at the start.
std::string ReceivedText(uint64_t begun, uint64_t received, uint64_t all, absl::Duration elapsed);

// Receives the file of `operation`, which is done. Continues with the bytes that an earlier process
// received. After an error the message says how the file can still be fetched. A full or broken
// disk leaves no part of the file.
ExitCode Download(Console* console, client::MusterClient& client, const CommonOptions& options,
                  const v1::Operation& operation, const DownloadTarget& target);

}  // namespace muster::cli

#endif  // MUSTER_CLIENT_CLI_DOWNLOAD_H_
