// A session: a generation of a job on a rank, from loading to the end of the last stage.
//
// Life cycle:
// - Create builds everything (model, data, communicating strategy, optimizer) and restores the
//   newest good checkpoint.
// - Run runs the remaining stages. Then the object is destroyed.
// - All stages use the same model and the same Training. Strategy and optimizer are made anew only
//   when the set of trained parameters changes (Training::Refresh).
// - Without a remaining fit stage, the memory that only training needs is freed
//   (Training::Release).
// - A change of membership never changes a session: a lost peer ends the session with an error, and
//   a new generation creates a new session.
//
// Threading: one thread. Ranks may be threads of one process (no process-wide state is changed).
// Errors: see Classify (ranks/failure.h).
#ifndef MUSTER_WORKER_TRAIN_SESSION_SESSION_H_
#define MUSTER_WORKER_TRAIN_SESSION_SESSION_H_

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/train/job/job.h"
#include "worker/train/ranks/failure.h"
#include "worker/train/session/session_parts.h"

namespace muster::train {

class Running;

class Session {
 public:
  static absl::StatusOr<std::unique_ptr<Session>> Create(const Identity& identity, const Job& job,
                                                         const SessionParts& parts);
  explicit Session(std::unique_ptr<Running> running);
  ~Session();

  absl::StatusOr<SessionEnd> Run();

 private:
  const std::unique_ptr<Running> running_;
};

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_SESSION_SESSION_H_
