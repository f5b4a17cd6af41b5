// Files that have a temporary name until they are whole: a file that is written at once, and a file
// that arrives in pieces.
#ifndef MUSTER_CLIENT_CLI_PARTIAL_FILE_H_
#define MUSTER_CLIENT_CLI_PARTIAL_FILE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/files/hash.h"
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

 private:
  explicit StagedFile(std::string path);
  std::string temporary() const { return path_ + ".tmp"; }

  const std::string path_;
  std::unique_ptr<files::HashingWriter> writer_;
  bool durable_ = false;  // complete under the temporary name, which this object then removes
};

enum class Existing { kKeep, kReplace };

// Whether a new file may get this name: OK, or ALREADY_EXISTS (with kKeep), FAILED_PRECONDITION
// (there is something else than a file, or the folder is none), NOT_FOUND (there is no folder),
// PERMISSION_DENIED.
absl::Status CheckNewFile(const std::string& path, Existing existing);

// A file whose arrival another process can continue: until it is whole it has a hidden name beside
// its own, ".NAME.TAG.part".
//
// Open, Append..., Publish or Discard. If the object is destroyed before, what has arrived stays,
// and the next Open continues it. Threading: one thread; of several processes one may have it open.
// Errors: those of common/files; after one only Discard may be called.
class PartialFile {
 public:
  // `tag`: what is received, so that nothing is added to the part of another file. Reads what has
  // arrived already. FAILED_PRECONDITION: another process receives it.
  static absl::StatusOr<std::unique_ptr<PartialFile>> Open(const std::string& path,
                                                           const std::string& tag);
  ~PartialFile();

  // What has arrived: how much, and its hash.
  uint64_t bytes() const { return bytes_; }
  std::string Hash() const { return hasher_.Hex(); }

  absl::Status Append(const std::string& data);
  // Nothing has arrived.
  absl::Status Restart();
  // Makes it durable, and gives it its name. ALREADY_EXISTS: with kKeep, there is a file now.
  absl::Status Publish(Existing existing);
  // Removes what has arrived.
  void Discard();

 private:
  PartialFile(std::string path, std::string part, int fd);
  absl::Status ReadWhatIsThere();

  const std::string path_;
  const std::string part_;
  const int fd_;
  files::Hasher hasher_;
  uint64_t bytes_ = 0;
};

}  // namespace muster::cli

#endif  // MUSTER_CLIENT_CLI_PARTIAL_FILE_H_
