// Which checkpoint a session starts from.
#include <algorithm>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/files/files.h"
#include "common/problems/problems.h"
#include "common/status/status.h"
#include "worker/checkpoint/directory.h"
#include "worker/checkpoint/load.h"
#include "worker/checkpoint/saver.h"

namespace muster::checkpoint {
namespace {

absl::StatusOr<VerifiedCheckpoint> Open(const std::string& path, const std::string& job) {
  absl::StatusOr<VerifiedCheckpoint> checkpoint = VerifiedCheckpoint::Open(path);
  if (!checkpoint.ok() || job.empty() || checkpoint->manifest().job == job) return checkpoint;
  return absl::DataLossError(absl::StrCat(path, ": expected a checkpoint of job '", job,
                                          "', found one of job '", checkpoint->manifest().job, "'"));
}

size_t Good(const std::vector<PartResult>& results) {
  return std::count_if(results.begin(), results.end(), [](const PartResult& r) { return r.ok(); });
}

size_t Damaged(const std::vector<PartResult>& results) {
  return std::count_if(results.begin(), results.end(),
                       [](const PartResult& r) { return absl::IsDataLoss(r.status()); });
}

}  // namespace

struct Saver::Reading {
  // Of this rank; OK where it is on all ranks.
  absl::StatusOr<VerifiedCheckpoint> checkpoint;
  std::vector<PartResult> results;
  bool damaged = false;
};

// One rank's bad read does not condemn. A rank that is alone with what it found reads again, with files
// opened anew; so does everybody at world size 1, where no other rank can look.
absl::StatusOr<Saver::Reading> Saver::Read(const Candidate& candidate) {
  const std::string path = files::JoinPath(options_.directory, candidate.name);
  const std::string job = candidate.own ? options_.job : "";
  Reading reading{.checkpoint = Open(path, job), .results = {}};
  ASSIGN_OR_RETURN(reading.results, Exchange(*communicator_, ToResult(reading.checkpoint.status()),
                                             "checkpoint verified", 0));
  const size_t ranks = reading.results.size();
  if (Good(reading.results) == ranks) return reading;
  const bool others_read_it = Good(reading.results) > 0;
  if (others_read_it || ranks == 1) {
    const bool damaged_before = Damaged(reading.results) > 0;
    if (!reading.checkpoint.ok()) reading.checkpoint = Open(path, job);
    ASSIGN_OR_RETURN(reading.results, Exchange(*communicator_, ToResult(reading.checkpoint.status()),
                                               "checkpoint verified again", 0));
    reading.damaged = ranks == 1 && damaged_before && Damaged(reading.results) > 0;
    return reading;
  }
  reading.damaged = Damaged(reading.results) >= 2;
  return reading;
}

absl::StatusOr<RestoreOutcome> Saver::Restore(const std::vector<std::string>& names,
                                              const State& state) {
  std::vector<Candidate> candidates;
  for (const std::string& name : names) candidates.push_back({.name = name});
  return Restore(candidates, [&state](const manifest::Manifest&) { return state; });
}

absl::StatusOr<RestoreOutcome> Saver::Restore(const std::vector<Candidate>& candidates,
                                              const StateFor& state_for) {
  RestoreOutcome outcome;
  Problems reasons;
  for (const Candidate& candidate : candidates) {
    const std::string path = files::JoinPath(options_.directory, candidate.name);
    ASSIGN_OR_RETURN(const Reading reading, Read(candidate));
    absl::Status status = Combine(reading.results);
    const size_t good = Good(reading.results);
    if (good == reading.results.size()) {
      ASSIGN_OR_RETURN(const State state, state_for(reading.checkpoint->manifest()));
      const auto copies = reading.checkpoint->PlanCopies(state);
      ASSIGN_OR_RETURN(const auto fits,
                       Exchange(*communicator_, ToResult(copies.status()), "checkpoint fits", 0));
      outcome.status = Annotate(Combine(fits), path);
      if (!outcome.status.ok()) return outcome;
      Fill(*copies);
      outcome.name = candidate.name;
      outcome.manifest = reading.checkpoint->manifest();
      return outcome;
    }
    if (good > 0) {
      // It is there, and it is whole: these ranks' view of the file system is at fault.
      outcome.at_fault = Failed(reading.results);
      outcome.status = absl::InternalError(absl::StrCat(
          path, ": ", status.message(), "; the other ranks read it"));
      return outcome;
    }
    if (reading.damaged && candidate.put_aside && communicator_->rank() == 0) {
      RETURN_IF_ERROR(CheckEpochHere());
      // A failure to rename is no reason not to go on: it is damaged all the same.
      SetAside(path).IgnoreError();
    }
    outcome.rejected.push_back({candidate.name, reading.damaged, Message(status)});
    reasons.Add(absl::StrCat(candidate.name, ": ", status.message()));
  }
  outcome.status = absl::NotFoundError(
      candidates.empty() ? "no checkpoint to restore from"
                         : absl::StrCat("no checkpoint can be read in ", options_.directory, ": ",
                                        reasons.Text()));
  return outcome;
}

}  // namespace muster::checkpoint
