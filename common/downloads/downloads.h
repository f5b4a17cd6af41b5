// Files that a command of a job writes for a client, in a folder of the agent of rank 0. The agent
// sends such a file when the client asks for it. The client gives the job and the command, and
// never a path.
#ifndef MUSTER_COMMON_DOWNLOADS_DOWNLOADS_H_
#define MUSTER_COMMON_DOWNLOADS_DOWNLOADS_H_

#include <cstdint>
#include <string>

namespace muster {

// The environment variable in which the agent tells a worker the folder. Absent: there is no
// folder.
inline constexpr char kDownloadsVariable[] = "MUSTER_DOWNLOADS";

// The path of "JOB-7" in the folder. Empty: there is no folder, or `job_id` has other characters
// than a-z, 0-9 and '-' and so is not a job's id.
std::string DownloadPath(const std::string& folder, const std::string& job_id, uint64_t command);

}  // namespace muster

#endif  // MUSTER_COMMON_DOWNLOADS_DOWNLOADS_H_
