// What a rank tells in its heartbeats of the file that it writes.
#ifndef MUSTER_COORDINATOR_MEMBERSHIP_FILE_WRITING_H_
#define MUSTER_COORDINATOR_MEMBERSHIP_FILE_WRITING_H_

#include <cstdint>

namespace muster::membership {

// How far a rank has come with its part of a file.
struct FileWriting {
  uint64_t command = 0;  // asked for it; 0: none
  uint64_t total_bytes = 0;
  uint64_t written_bytes = 0;
  bool operator==(const FileWriting&) const = default;
};

}  // namespace muster::membership

#endif  // MUSTER_COORDINATOR_MEMBERSHIP_FILE_WRITING_H_
