// Files that a command of a job writes for a client, in a folder of the agent of rank 0. The agent
// sends such a file when the client asks for it: who asks gives the job and the command, and never
// a path.
#ifndef MUSTER_COMMON_DOWNLOADS_DOWNLOADS_H_
#define MUSTER_COMMON_DOWNLOADS_DOWNLOADS_H_

#include <cstdint>
#include <string>

namespace muster {

// The environment variable in which the agent tells a worker its folder. Absent: there is none.
inline constexpr char kDownloadsVariable[] = "MUSTER_DOWNLOADS";

// "JOB-7" in the folder. Empty: there is no folder, or `job_id` is no job's id (it has other
// characters than a-z, 0-9 and '-').
std::string DownloadPath(const std::string& folder, const std::string& job_id, uint64_t command);

}  // namespace muster

#endif  // MUSTER_COMMON_DOWNLOADS_DOWNLOADS_H_
