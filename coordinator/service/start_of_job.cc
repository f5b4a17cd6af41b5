#include "coordinator/service/start_of_job.h"

#include <optional>
#include <string>

#include "absl/synchronization/notification.h"
#include "common/jobspec/rules.h"
#include "common/jobspec/training_settings.h"
#include "common/manifest/name.h"
#include "coordinator/service/submission.h"

namespace muster::service {
namespace {

// What the engine knows about the job that a file names.
struct Named {
  v1::JobSpec file;  // with the directory of the checkpoint
  v1::SpecProblems problems;
  std::optional<v1::JobSpec> stored;  // the job that wrote it; absent: a directory was named
};

// Absent: the engine does not answer.
std::optional<Named> Find(Engine* engine, const v1::JobSpec& file) {
  std::optional<Named> found;
  absl::Notification done;
  engine->Read([&](const absl::Status& committed) {
    if (committed.ok()) {
      found.emplace(Named{.file = file, .problems = {}, .stored = std::nullopt});
      found->problems = ResolveStart(engine->cluster(), &found->file);
      const auto named = jobspec::ParseJobAndStep(file.start().checkpoint());
      const jobs::Job* job = named.has_value() ? engine->cluster().Find(named->job) : nullptr;
      if (job != nullptr) found->stored.emplace().ParseFromString(job->spec);
    }
    done.Notify();
  });
  done.WaitForNotification();
  return found;
}

}  // namespace

jobfile::Continued ContinueFromStart(Engine* engine, const v1::JobSpec& file) {
  jobfile::Continued as_it_is{.spec = file, .problems = {}, .taken = {}, .differing = {}};
  if (!jobfile::GoesOn(file)) return as_it_is;
  const std::optional<Named> named = Find(engine, file);
  if (!named.has_value()) return as_it_is;
  if (!named->problems.problems().empty()) {
    as_it_is.problems = named->problems;
    return as_it_is;
  }
  const std::string& directory = named->file.start().checkpoint();
  auto from = jobfile::ReadSettings(directory);
  const auto name = manifest::ParseFinalName(manifest::NameOfDirectory(directory));
  // The stored settings do not have the learning rate that commands gave the job.
  if (!from.ok() && named->stored.has_value() && name.has_value() && file.has_optimizer()) {
    from = jobfile::CheckpointSettings{
        .step = static_cast<uint64_t>(name->step),
        .settings = jobspec::TrainingSettings(*named->stored)};
  }
  if (from.ok()) return jobfile::Continue(named->file, *from, directory);
  as_it_is.problems = jobfile::CannotRead(directory, from.status());
  return as_it_is;
}

}  // namespace muster::service
