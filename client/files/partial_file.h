// Files that have a temporary name until they are complete: a file that is written at once, and a
// file that arrives in pieces.
#ifndef MUSTER_CLIENT_FILES_PARTIAL_FILE_H_
#define MUSTER_CLIENT_FILES_PARTIAL_FILE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/files/hash.h"
#include "common/files/hashing_writer.h"

namespace muster::client {

// The calls are Create, Append..., MakeDurable, Publish. An object that is destroyed before Publish
// leaves no file. Threading: one thread. Errors: those of common/files.
class StagedFile {
 public:
  // FAILED_PRECONDITION: `path` is something else than a regular file, for example a link.
  static absl::StatusOr<std::unique_ptr<StagedFile>> Create(const std::string& path);
  ~StagedFile();

  absl::Status Append(const void* data, size_t size) { return writer_->Append(data, size); }
  // Makes the contents durable. Only a rename is left to do afterwards.
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

// Returns whether a new file may get this name. ALREADY_EXISTS: with kKeep, a file has the name.
// FAILED_PRECONDITION: something else than a file has the name, or the parent is not a folder.
// NOT_FOUND: there is no folder. PERMISSION_DENIED: the folder cannot be used.
absl::Status CheckNewFile(const std::string& path, Existing existing);

// A file whose arrival another process can continue. Until the file is complete, it has a hidden
// name beside its own name: ".NAME.TAG.part".
//
// The calls are Open, Append..., Publish or Discard. An object that is destroyed earlier leaves the
// bytes that have arrived, and the next Open continues with them. Threading: one thread. Only one
// process may have the file open. Errors: those of common/files; after an error only Discard may be
// called.
class PartialFile {
 public:
  // Reads the bytes that have arrived already. `tag` names what is received, so that nothing is
  // added to the part of another file. FAILED_PRECONDITION: another process receives the file.
  static absl::StatusOr<std::unique_ptr<PartialFile>> Open(const std::string& path,
                                                           const std::string& tag);
  ~PartialFile();

  // The bytes that have arrived: their number, and their hash.
  uint64_t bytes() const { return bytes_; }
  std::string Hash() const { return hasher_.Hex(); }

  absl::Status Append(const std::string& data);
  // Drops the bytes that have arrived.
  absl::Status Restart();
  // Makes the file durable, and gives it its name. ALREADY_EXISTS: with kKeep, a file has the name.
  absl::Status Publish(Existing existing);
  // Removes the file with the bytes that have arrived.
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

}  // namespace muster::client

#endif  // MUSTER_CLIENT_FILES_PARTIAL_FILE_H_
