// Receives the file that an operation wrote for this client (`--download`).
#ifndef MUSTER_CLIENT_CLI_DOWNLOAD_H_
#define MUSTER_CLIENT_CLI_DOWNLOAD_H_

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "client/api/client.h"
#include "client/cli/command.h"
#include "client/cli/partial_file.h"
#include "client/cli/terminal/console.h"
#include "client/cli/terminal/exit_code.h"
#include "proto/muster/v1/operation.pb.h"

namespace muster::cli {

struct DownloadTarget {
  std::string path;  // absolute
  Existing existing = Existing::kKeep;
};

// Of a path and --overwrite as the user gives them.
DownloadTarget TargetOf(const std::string& path, bool overwrite);

// "received 12% of 1.2 GB, 34 MB/s, 31s left". `begun`: what was there before.
std::string ReceivedText(uint64_t begun, uint64_t received, uint64_t all, absl::Duration elapsed);

// `operation` is done. Continues what an earlier process received of this file. After an error the
// message says how the file can still be fetched; a disk that is full or broken leaves nothing of
// it.
ExitCode Download(Console* console, client::MusterClient& client, const CommonOptions& options,
                  const v1::Operation& operation, const DownloadTarget& target);

}  // namespace muster::cli

#endif  // MUSTER_CLIENT_CLI_DOWNLOAD_H_
