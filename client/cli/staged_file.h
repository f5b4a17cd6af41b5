// A file that is written under a temporary name and gets its final name only when all of it is
// durable.
#ifndef MUSTER_CLIENT_CLI_STAGED_FILE_H_
#define MUSTER_CLIENT_CLI_STAGED_FILE_H_

#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/files/hashing_writer.h"

namespace muster::cli {

// Create, Append..., MakeDurable, Publish. An object that is destroyed before Publish leaves no
// file. Threading: one thread. Errors: those of common/files.
class StagedFile {
 public:
  // FAILED_PRECONDITION: `path` is something else than a regular file, for example a link.
  static absl::StatusOr<std::unique_ptr<StagedFile>> Create(const std::string& path);
  ~StagedFile();

  absl::Status Append(const void* data, size_t size) { return writer_->Append(data, size); }
  // After this only a rename is left to do.
  absl::Status MakeDurable();
  absl::Status Publish();

  const std::string& path() const { return path_; }

 private:
  explicit StagedFile(std::string path);
  std::string temporary() const { return path_ + ".tmp"; }

  const std::string path_;
  std::unique_ptr<files::HashingWriter> writer_;
  bool durable_ = false;  // complete under the temporary name, which this object then removes
};

}  // namespace muster::cli

#endif  // MUSTER_CLIENT_CLI_STAGED_FILE_H_
