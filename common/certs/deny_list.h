// Certificates that count no more although they have not expired: a file of serial numbers, one a
// line; '#' begins a comment. `muster certs revoke` writes it, musterd reads it.
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

// Serials as NormalSerial.
struct ParsedDenyList {
  std::set<std::string> serials;
  // INVALID_ARGUMENT: lines that are no serial number, at most 3 of them named. The others count.
  absl::Status problem;
};
ParsedDenyList ParseDenyList(const std::string& text);

// The list as it is now: it is read again when its file has changed. A serial number that was read
// once stays revoked as long as the program runs, also when the file has it no more: a copy over
// the file empties it first, and nobody revokes a certificate only for a time. Thread-safe.
class DenyList {
 public:
  struct Options {
    // Steady; see common/steady/now.h.
    std::function<absl::Time()> now;
    // Told why a changed file cannot be read, which of its lines are wrong, or which serial numbers
    // have gone; once for each change. What was read before and what can be read now count. Called
    // by the thread that asks, under no lock.
    std::function<void(const absl::Status&)> on_trouble = [](const absl::Status&) {};
  };
  // How long a change may stay unnoticed.
  static constexpr absl::Duration kInterval = absl::Seconds(1);

  // Errors: those of reading a file; INVALID_ARGUMENT: a line is wrong, or the file is larger than
  // 16 MiB.
  static absl::StatusOr<std::unique_ptr<DenyList>> Load(const std::string& path, Options options);
  // Nothing is revoked.
  static std::unique_ptr<DenyList> None();

  // Looks at the file at most once in kInterval, and reads it if it has changed.
  bool Has(const std::string& serial) const;

 private:
  // What changes when a file is written or replaced.
  struct Version {
    dev_t device = 0;
    ino_t inode = 0;
    off_t size = -1;
    timespec modified = {};
    bool operator==(const Version& other) const;
  };

  DenyList(std::string path, Options options);
  absl::StatusOr<Version> Look() const;
  // Reads the file if it has changed. It is small: who asks at the same time waits for it.
  absl::Status Refresh() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string path_;
  const Options options_;
  mutable absl::Mutex mutex_;
  mutable absl::Time looked_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  mutable Version version_ ABSL_GUARDED_BY(mutex_);
  // What is wrong with the lines of this version, or missing in it.
  mutable absl::Status problem_ ABSL_GUARDED_BY(mutex_);
  // What was told last.
  mutable absl::Status told_ ABSL_GUARDED_BY(mutex_);
  mutable std::set<std::string> serials_ ABSL_GUARDED_BY(mutex_);
};

// Adds a line for each serial that the file has not yet, with the comment. The file is created if
// it is missing, and replaced at once. One writer at a time. INVALID_ARGUMENT: a line in the file
// is wrong; nothing is changed.
absl::Status AddToDenyList(const std::string& path, const std::set<std::string>& serials,
                           const std::string& comment);

}  // namespace muster::certs

#endif  // MUSTER_COMMON_CERTS_DENY_LIST_H_
