// Reading a block of a checkpoint's file, and checking it against its hash.
#ifndef MUSTER_COMMON_MANIFEST_BLOCK_H_
#define MUSTER_COMMON_MANIFEST_BLOCK_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "common/manifest/manifest.h"

namespace muster::manifest {

// Reads bytes [offset, offset + bytes) of the open file `path`; read, not mapped, so that a failed
// read is an error and not a signal. DATA_LOSS: the file ends before.
absl::Status ReadAt(int fd, int64_t offset, char* to, int64_t bytes, const std::string& path);

// DATA_LOSS unless `data` has the hash of block `number` of the file, whose record has hashes of
// its blocks.
absl::Status CheckBlock(const FileRecord& record, int64_t number, const char* data, int64_t bytes,
                        const std::string& path);

}  // namespace muster::manifest

#endif  // MUSTER_COMMON_MANIFEST_BLOCK_H_
