// Certificates that are revoked before they expire: a file of serial numbers, one a line; '#'
// begins a comment. `muster certs revoke` writes the file, musterd reads it.
#ifndef MUSTER_COMMON_CERTS_DENY_LIST_H_
#define MUSTER_COMMON_CERTS_DENY_LIST_H_

#include <sys/types.h>
#include <time.h>

#include <functional>
#include <memory>
#include <set>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace muster::certs {

// The contents of a deny list. The serials have the form of NormalSerial.
struct ParsedDenyList {
  std::set<std::string> serials;
  // INVALID_ARGUMENT: lines that are not serial numbers; the message names at most 3. The other
  // lines count.
  absl::Status problem;
};
ParsedDenyList ParseDenyList(const std::string& text);

// The present list: the file is read again when it has changed. Thread-safe. A serial number that
// was read stays revoked as long as the program runs, even after its removal from the file. The
// reason: a copy over the file empties it first, and nobody revokes a certificate only for a time.
class DenyList {
 public:
  struct Options {
    // Returns the steady time; see common/steady/now.h.
    std::function<absl::Time()> now;
    // Called once for each change of the file with a problem: the file cannot be read, lines are
    // wrong, or serial numbers have gone. All numbers that were ever read stay revoked, and the
    // readable lines count. Called by the thread that calls Has, without a lock.
    std::function<void(const absl::Status&)> on_trouble = [](const absl::Status&) {};
  };
  // The longest time for which a change may stay unnoticed.
  static constexpr absl::Duration kInterval = absl::Seconds(1);

  // Reads the file. Errors: those of reading a file; INVALID_ARGUMENT: a line is wrong, or the file
  // is larger than 16 MiB.
  static absl::StatusOr<std::unique_ptr<DenyList>> Load(const std::string& path, Options options);
  // A list that revokes nothing.
  static std::unique_ptr<DenyList> None();

  // Returns whether the serial number is revoked. Looks at the file at most once in kInterval, and
  // reads the file if it has changed.
  bool Has(const std::string& serial) const;

 private:
  // The attributes that change when a file is written or replaced.
  struct Version {
    dev_t device = 0;
    ino_t inode = 0;
    off_t size = -1;
    timespec modified = {};
    bool operator==(const Version& other) const;
  };

  DenyList(std::string path, Options options);
  absl::StatusOr<Version> Look() const;
  // Reads the file if it has changed. The file is small: callers at the same time wait for the
  // reader.
  absl::Status Refresh() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string path_;
  const Options options_;
  mutable absl::Mutex mutex_;
  mutable absl::Time looked_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  mutable Version version_ ABSL_GUARDED_BY(mutex_);
  // The problem with the lines of this version, or with missing ones.
  mutable absl::Status problem_ ABSL_GUARDED_BY(mutex_);
  // The problem that was reported last.
  mutable absl::Status told_ ABSL_GUARDED_BY(mutex_);
  mutable std::set<std::string> serials_ ABSL_GUARDED_BY(mutex_);
};

// Adds a line, with the comment, for each serial that the file does not have. A missing file is
// created. The file is replaced in one step. One writer at a time. INVALID_ARGUMENT: a line in the
// file is wrong; nothing is changed.
absl::Status AddToDenyList(const std::string& path, const std::set<std::string>& serials,
                           const std::string& comment);

}  // namespace muster::certs

#endif  // MUSTER_COMMON_CERTS_DENY_LIST_H_
