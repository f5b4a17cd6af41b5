// A worker's reports on the disk of its agent, while the coordinator cannot be reached. The worker
// may end before the reports are sent; the agent sends them later.
//
// There is one file per process. Its first record names the worker; each further record is a
// report, as serialized for the wire. Every record begins with its length and a checksum. So a
// reader ignores an incomplete record of a killed writer at the end.
#ifndef MUSTER_COMMON_SPOOL_SPOOL_H_
#define MUSTER_COMMON_SPOOL_SPOOL_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace muster {

// The environment variables with the path of the worker's file and its largest size, set by the
// agent. If both are absent, there is no file.
inline constexpr char kSpoolVariable[] = "MUSTER_SPOOL";
inline constexpr char kSpoolLimitVariable[] = "MUSTER_SPOOL_BYTES";

struct Spooled {
  // A serialized v1::WorkerIdentity.
  std::string worker;
  // Serialized v1::WorkerReport messages, in the order of their sequence.
  std::vector<std::string> reports;
};

// Replaces the file. OK: the file is durable.
absl::Status WriteSpool(const std::string& path, const Spooled& spooled);

// Adds reports to a file of WriteSpool. The reports survive the end of the process at once, and a
// crash of the machine after a SyncSpool that returned OK.
absl::Status AppendToSpool(const std::string& path, const std::vector<std::string>& reports);
absl::Status SyncSpool(const std::string& path);

// Reads all complete records. NOT_FOUND: there is no such file. DATA_LOSS: even the record that
// names the worker cannot be read.
absl::StatusOr<Spooled> ReadSpool(const std::string& path);

}  // namespace muster

#endif  // MUSTER_COMMON_SPOOL_SPOOL_H_
