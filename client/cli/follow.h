// Shows a job until it has ended, and how it ended.
#ifndef MUSTER_CLIENT_CLI_FOLLOW_H_
#define MUSTER_CLIENT_CLI_FOLLOW_H_

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "client/api/client.h"
#include "client/cli/command.h"

namespace muster::cli {

// Shows the job's progress on stderr and returns its last state, or the first one for which `until`
// is true.
absl::StatusOr<v1::Job> FollowJob(Console* console, client::MusterClient* client,
                                  const std::string& job_id, const client::StreamOptions& options,
                                  const std::function<bool(const v1::Job&)>& until = nullptr);

// Prints a job that has ended: its summary or its document on stdout, its failure on stderr.
// Returns its exit code.
ExitCode ReportEnd(Console* console, const v1::Job& job, Output output);

}  // namespace muster::cli

#endif  // MUSTER_CLIENT_CLI_FOLLOW_H_
