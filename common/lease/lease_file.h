// The end of an agent's lease in a file, for the workers that it starts. Until a worker is welcomed
// it has no lease of its own, and while its agent is stopped (SIGSTOP) nobody can end it. So it
// reads this file, and ends itself when its agent's lease is over.
#ifndef MUSTER_COMMON_LEASE_LEASE_FILE_H_
#define MUSTER_COMMON_LEASE_LEASE_FILE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace muster {

// The environment variable in which an agent tells a worker the path of the file. Absent: the
// worker does not end with its agent's lease, or there is no file.
inline constexpr char kLeaseFileVariable[] = "MUSTER_LEASE_FILE";

// Written by one process, in place, so that a reader always finds a complete value. It is not
// durable: it has no meaning after a restart of the machine.
class LeaseFile {
 public:
  LeaseFile() = default;
  ~LeaseFile();
  LeaseFile(const LeaseFile&) = delete;
  LeaseFile& operator=(const LeaseFile&) = delete;

  // Creates the file, or replaces one that a former process left.
  absl::Status Open(const std::string& path);
  // `end` is a time of SteadyNow(). Infinite: no end is known. Does nothing without an open file,
  // and if the value has not changed.
  void Write(absl::Time end);
  // Empty: there is none.
  const std::string& path() const { return path_; }

  // Infinite if the file cannot be read.
  static absl::Time Read(const std::string& path);

 private:
  std::string path_;
  int fd_ = -1;
  absl::Time written_ = absl::InfinitePast();
};

}  // namespace muster

#endif  // MUSTER_COMMON_LEASE_LEASE_FILE_H_
