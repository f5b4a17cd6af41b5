// How a run that was preempted is continued.
#ifndef MUSTER_CLIENT_CLI_CONTINUATION_H_
#define MUSTER_CLIENT_CLI_CONTINUATION_H_

#include <string>
#include <vector>

namespace muster::cli {

// The newest whole checkpoint in a job's own folder: its path; empty: there is none, or the folder
// cannot be read. The coordinator may not know it, if its store could not be written.
std::string NewestCheckpoint(const std::string& job_folder);

// `words` as a line that a shell reads as the same words.
std::string ShellLine(const std::vector<std::string>& words);

// The words of a `muster run` without --new, --retry and all that chooses where the job starts, and
// with `checkpoint` as its start. Without a checkpoint: the start stays as it was. Pure.
std::vector<std::string> ContinueFrom(const std::vector<std::string>& words,
                                      const std::string& checkpoint);

}  // namespace muster::cli

#endif  // MUSTER_CLIENT_CLI_CONTINUATION_H_
