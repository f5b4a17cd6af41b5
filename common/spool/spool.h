// A worker's reports on the disk of its agent, for the time in which the coordinator cannot be
// reached: the worker may end before they are sent, and the agent sends them later.
//
// There is one file per process. Its first record says to which worker it belongs; each further
// record is a report, as serialized for the wire. Every record begins with its length and a
// checksum, so a record that a killed writer left incomplete at the end is not read.
#ifndef MUSTER_COMMON_SPOOL_SPOOL_H_
#define MUSTER_COMMON_SPOOL_SPOOL_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace muster {

// The environment variables in which the agent tells a worker the path of its file and its largest
// size. If both are absent, there is no file.
inline constexpr char kSpoolVariable[] = "MUSTER_SPOOL";
inline constexpr char kSpoolLimitVariable[] = "MUSTER_SPOOL_BYTES";

struct Spooled {
  // v1::WorkerIdentity, serialized.
  std::string worker;
  // v1::WorkerReport, serialized, in the order of their sequence.
  std::vector<std::string> reports;
};

// Replaces the file. It is durable if OK.
absl::Status WriteSpool(const std::string& path, const Spooled& spooled);

// Adds reports to a file that WriteSpool made. They survive the end of the process at once, and a
// crash of the machine once SyncSpool is OK.
absl::Status AppendToSpool(const std::string& path, const std::vector<std::string>& reports);
absl::Status SyncSpool(const std::string& path);

// All complete records. NOT_FOUND: there is no such file. DATA_LOSS: even the record that names the
// worker cannot be read.
absl::StatusOr<Spooled> ReadSpool(const std::string& path);

}  // namespace muster

#endif  // MUSTER_COMMON_SPOOL_SPOOL_H_
