// The end of an agent's lease in a file, for the workers of the agent. A worker has no own lease
// until it is welcomed, and a stopped agent (SIGSTOP) cannot end the worker. So the worker reads
// this file, and ends itself when the lease of its agent is over.
#ifndef MUSTER_COMMON_LEASE_LEASE_FILE_H_
#define MUSTER_COMMON_LEASE_LEASE_FILE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace muster {

// The environment variable in which an agent tells a worker the path of the file. Absent: the
// worker does not end with its agent's lease, or there is no file.
inline constexpr char kLeaseFileVariable[] = "MUSTER_LEASE_FILE";

// A file that one process writes in place, so that a reader always finds a complete value. The file
// is not durable: it has no meaning after a restart of the machine.
class LeaseFile {
 public:
  LeaseFile() = default;
  ~LeaseFile();
  LeaseFile(const LeaseFile&) = delete;
  LeaseFile& operator=(const LeaseFile&) = delete;

  // Creates the file, or replaces a file that an earlier process left.
  absl::Status Open(const std::string& path);
  // Writes `end`, a time of SteadyNow(); infinite: no end is known. Does nothing without an open
  // file, and if the value has not changed.
  void Write(absl::Time end);
  // The path of the file; empty without a file.
  const std::string& path() const { return path_; }

  // The end in the file; infinite if the file cannot be read.
  static absl::Time Read(const std::string& path);

 private:
  std::string path_;
  int fd_ = -1;
  absl::Time written_ = absl::InfinitePast();
};

}  // namespace muster

#endif  // MUSTER_COMMON_LEASE_LEASE_FILE_H_
