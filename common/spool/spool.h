// A worker's reports on the disk of its agent, for the time in which the coordinator cannot be
// reached: the worker may end before they are told, and the agent tells them later.
//
// One file per process. Record by record it holds whom it belongs to, and then its reports, each as
// the bytes that the wire knows. Every record has its length and a checksum before it: what a
// killed writer left half written at the end is not read.
#ifndef MUSTER_COMMON_SPOOL_SPOOL_H_
#define MUSTER_COMMON_SPOOL_SPOOL_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace muster {

// How the agent tells a worker where its file is to be, and how big it may grow. Both absent: there
// is none.
inline constexpr char kSpoolVariable[] = "MUSTER_SPOOL";
inline constexpr char kSpoolLimitVariable[] = "MUSTER_SPOOL_BYTES";

struct Spooled {
  // v1::WorkerIdentity, serialized.
  std::string worker;
  // v1::WorkerReport, serialized, in the order of their sequence.
  std::vector<std::string> reports;
};

// Writes the file anew. Durable where OK.
absl::Status WriteSpool(const std::string& path, const Spooled& spooled);

// Adds reports to a file that WriteSpool made; they outlive the process at once, and the machine
// once SyncSpool is OK.
absl::Status AppendToSpool(const std::string& path, const std::vector<std::string>& reports);
absl::Status SyncSpool(const std::string& path);

// What can be read of it. NOT_FOUND: no such file. DATA_LOSS: it does not even say whom it belongs
// to.
absl::StatusOr<Spooled> ReadSpool(const std::string& path);

}  // namespace muster

#endif  // MUSTER_COMMON_SPOOL_SPOOL_H_
