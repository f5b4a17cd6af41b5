// The end of an agent's lease in a file, for the workers that it starts: until a worker is welcomed
// it has no lease of its own, and while its agent is stopped nobody can end it. So it looks here,
// and ends itself when its agent's lease is over.
#ifndef MUSTER_COMMON_LEASE_LEASE_FILE_H_
#define MUSTER_COMMON_LEASE_LEASE_FILE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace muster {

// How an agent tells a worker where the file is. Absent: the worker may go on without it, or there
// is none.
inline constexpr char kLeaseFileVariable[] = "MUSTER_LEASE_FILE";

// Written by one process, in place, so that who reads it finds one of the ends. It is not durable:
// it means nothing after a restart of the machine.
class LeaseFile {
 public:
  LeaseFile() = default;
  ~LeaseFile();
  LeaseFile(const LeaseFile&) = delete;
  LeaseFile& operator=(const LeaseFile&) = delete;

  // Makes the file; what a former process left there is gone.
  absl::Status Open(const std::string& path);
  // As of SteadyNow(). Infinite: no end is known. Without an open file, and where it is the same as
  // before, nothing happens.
  void Write(absl::Time end);
  // Empty: there is none.
  const std::string& path() const { return path_; }

  // Infinite where it cannot be read.
  static absl::Time Read(const std::string& path);

 private:
  std::string path_;
  int fd_ = -1;
  absl::Time written_ = absl::InfinitePast();
};

}  // namespace muster

#endif  // MUSTER_COMMON_LEASE_LEASE_FILE_H_
