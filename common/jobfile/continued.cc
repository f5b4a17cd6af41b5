#include "common/jobfile/continued.h"

#include <sys/stat.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/files/files.h"
#include "common/jobspec/jobspec.h"
#include "common/jobspec/rules.h"
#include "common/jobspec/training_settings.h"
#include "common/manifest/manifest.h"
#include "common/problems/problems.h"
#include "common/status/status.h"

namespace muster::jobfile {
namespace {

constexpr int64_t kLargestManifest = int64_t{1} << 30;

absl::Status CheckFile(const std::string& path) {
  struct stat info;
  if (stat(path.c_str(), &info) != 0) return absl::OkStatus();  // the read of the file reports it
  if (!S_ISREG(info.st_mode)) {
    return absl::FailedPreconditionError(absl::StrCat(path, " is not a regular file"));
  }
  if (info.st_size <= kLargestManifest) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(path, ": found ", info.st_size, " bytes; allowed: at most ", kLargestManifest));
}

v1::SpecProblems Problem(const std::string& path, const std::string& message) {
  v1::SpecProblems problems;
  auto* problem = problems.add_problems();
  problem->set_path(path);
  problem->set_message(message);
  return problems;
}

// Says that no step is left. Empty: some step is left, or only the data can tell.
std::string NothingLeft(const v1::JobSpec& file, uint64_t step, const std::string& checkpoint) {
  const auto steps = jobspec::TotalSteps(file);
  if (!steps.has_value() || *steps > step) return "";
  return absl::StrCat("found everything, but the checkpoint ", checkpoint, " is of step ", step,
                      ", and the fit stages have ", *steps,
                      " steps, in which those of the other job count: nothing would be trained; "
                      "allowed: more than ",
                      step, " steps in all, or what: weights, which begins at step 0");
}

// Returns whether the other job has done every step that the profile names.
bool ProfilesOnlyBefore(const v1::ProfileSpec& profile, uint64_t step) {
  return !profile.steps().empty() &&
         std::all_of(profile.steps().begin(), profile.steps().end(),
                     [step](uint64_t one) { return one <= step; });
}

std::string Sentence(const std::string& begin, const std::vector<std::string>& settings) {
  Problems list;
  for (const std::string& one : settings) list.Add(one);
  return list.count() == 0 ? "" : absl::StrCat(begin, list.Text());
}

}  // namespace

bool GoesOn(const v1::JobSpec& file) {
  return file.start().what() == v1::StartSpec::EVERYTHING && jobspec::Trains(file);
}

absl::StatusOr<CheckpointSettings> ReadSettings(const std::string& directory) {
  RETURN_IF_ERROR(CheckFile(files::JoinPath(directory, manifest::kFileName)));
  ASSIGN_OR_RETURN(const manifest::Manifest manifest, manifest::Read(directory));
  CheckpointSettings found{.step = static_cast<uint64_t>(manifest.step), .settings = std::nullopt};
  const manifest::Steering& steering = manifest.steering;
  found.learning_rate = steering.learning_rate;
  if (manifest.settings.empty()) return found;
  ASSIGN_OR_RETURN(found.settings, jobspec::TrainingSettingsFromJson(manifest.settings));
  if (steering.learning_rate.has_value()) {
    jobspec::SetLearningRate(*steering.learning_rate, &*found.settings);
  }
  const bool rules = !steering.rules.empty() || found.settings->has_trainable();
  if (steering.trainability_version > 0 && rules) {
    v1::TrainableSpec* trainable = found.settings->mutable_trainable();
    trainable->clear_rules();
    for (const auto& rule : steering.rules) {
      v1::TrainableRule* added = trainable->add_rules();
      rule.freeze ? added->set_freeze(rule.pattern) : added->set_unfreeze(rule.pattern);
    }
  }
  return found;
}

Continued Continue(const v1::JobSpec& file, const CheckpointSettings& from,
                   const std::string& checkpoint) {
  Continued result{.spec = file, .problems = {}, .taken = {}, .differing = {}};
  const std::string nothing_left = NothingLeft(file, from.step, checkpoint);
  if (!nothing_left.empty()) {
    result.problems = Problem("start.what", nothing_left);
    return result;
  }
  if (ProfilesOnlyBefore(file.profile(), from.step)) {
    result.problems = Problem(
        "profile.steps", absl::StrCat("found only steps that the other job has done, up to ",
                                      from.step, "; allowed: ", from.step + 1, " or more"));
    return result;
  }
  std::optional<v1::JobSpec> settings = from.settings;
  if (!settings.has_value() && from.learning_rate.has_value()) {
    // The only setting that an older checkpoint has is the learning rate.
    settings = jobspec::ResolveDefaults(file);
    jobspec::SetLearningRate(*from.learning_rate, &*settings);
  }
  if (settings.has_value()) {
    jobspec::TakenSettings taken = jobspec::TakeLeftOut(file, *settings);
    result.spec = std::move(taken.spec);
    result.taken = Sentence(
        absl::StrCat("start.what: everything: the job file leaves out, and so the checkpoint ",
                     checkpoint, " gives: "),
        taken.taken);
    result.differing =
        Sentence(absl::StrCat("start.what: everything: the job file counts where the checkpoint ",
                              checkpoint, " has another value: "),
                 taken.differing);
  }
  if (!result.spec.has_optimizer()) {
    result.problems = Problem(
        "optimizer", absl::StrCat("is missing, and the checkpoint ", checkpoint,
                                  " does not say which one it had, because an older program "
                                  "wrote it; allowed: to write it into the job file"));
    return result;
  }
  result.problems = jobspec::ValidateSpec(result.spec);
  for (v1::SpecProblem& problem : *result.problems.mutable_problems()) {
    absl::StrAppend(problem.mutable_message(),
                    " (of the job file together with what it leaves out, which the checkpoint ",
                    checkpoint, " gives)");
  }
  return result;
}

Continued ContinueHere(const v1::JobSpec& file) {
  const std::string& directory = file.start().checkpoint();
  Continued result{.spec = file, .problems = {}, .taken = {}, .differing = {}};
  if (!GoesOn(file) || !jobspec::IsDirectory(directory)) return result;
  const auto from = ReadSettings(directory);
  if (from.ok()) return Continue(file, *from, directory);
  result.problems = CannotRead(directory, from.status());
  return result;
}

v1::SpecProblems CannotRead(const std::string& checkpoint, const absl::Status& why) {
  return Problem(
      "start.checkpoint",
      absl::StrCat("found ", checkpoint, ", whose ", manifest::kFileName,
                   " cannot be read here, although it has the settings that the job file leaves "
                   "out (start.what: everything): ",
                   Message(why),
                   "; allowed: a checkpoint whose MANIFEST.json can be read on this host (a copy "
                   "at the same path is enough), or JOB@STEP of a job of this coordinator"));
}

}  // namespace muster::jobfile
