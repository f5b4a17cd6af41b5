// Which checkpoint a session starts from.
#include <cstdint>
#include <filesystem>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/activity/activity.h"
#include "common/files/disk.h"
#include "common/files/files.h"
#include "common/files/hash.h"
#include "common/problems/problems.h"
#include "common/status/status.h"
#include "worker/checkpoint/directory.h"
#include "worker/checkpoint/load.h"
#include "worker/checkpoint/saver.h"
#include "worker/checkpoint/verdict.h"

namespace muster::checkpoint {
namespace {

namespace fs = std::filesystem;

// The pause between two reads of a file that may be readable again soon.
constexpr absl::Duration kBetweenReads = absl::Seconds(1);

absl::StatusOr<VerifiedCheckpoint> Open(const std::string& path, const std::string& job) {
  absl::StatusOr<VerifiedCheckpoint> checkpoint = VerifiedCheckpoint::Open(path);
  if (!checkpoint.ok() || job.empty() || checkpoint->manifest().job == job) return checkpoint;
  return absl::DataLossError(absl::StrCat(path, ": expected a checkpoint of job '", job,
                                          "', found one of job '", checkpoint->manifest().job,
                                          "'"));
}

// Best effort: pages that stay in memory are read from there.
void DropPages(const std::string& directory, files::Disk& disk) {
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    std::error_code ignored;
    if (it->is_regular_file(ignored)) disk.DropPages(it->path().string()).IgnoreError();
  }
}

}  // namespace

struct Saver::Reading {
  // The result of this rank; OK if it is OK on all ranks.
  absl::StatusOr<VerifiedCheckpoint> checkpoint;
  // The results of all ranks in the last read.
  std::vector<PartResult> results;
  Verdict verdict = Verdict::kUnread;
};

absl::StatusOr<std::vector<std::string>> Saver::Nodes() {
  const std::string& node = options_.node;
  // Of a fixed size, in the form in which results are sent.
  const PartResult mine = manifest::FileRecord{"", 0, files::HashBytes(node.data(), node.size())};
  ASSIGN_OR_RETURN(const auto told, Exchange(*communicator_, mine, "nodes", 0));
  std::vector<std::string> nodes;
  for (const PartResult& one : told) nodes.push_back(one->hash);
  return nodes;
}

void Saver::WaitToReadAgain() {
  // The wait is short and does not depend on other ranks, so it counts as activity: the rank does
  // not hang.
  activity::Moved();
  if (options_.wait) {
    options_.wait(kBetweenReads);
  } else {
    // Not absl::SleepFor (common/steady/condition.h).
    std::this_thread::sleep_for(absl::ToChronoNanoseconds(kBetweenReads));
  }
  activity::Moved();
}

absl::StatusOr<Saver::Reading> Saver::Read(const Candidate& candidate,
                                           const std::vector<std::string>& nodes) {
  const std::string path = files::JoinPath(options_.directory, candidate.name);
  const std::string job = candidate.own ? options_.job : "";
  Reading reading{.checkpoint = Open(path, job), .results = {}};
  std::vector<std::vector<PartResult>> reads;
  while (true) {
    ASSIGN_OR_RETURN(auto results,
                     Exchange(*communicator_, ToResult(reading.checkpoint.status()),
                              "checkpoint verified", static_cast<int64_t>(reads.size())));
    reads.push_back(std::move(results));
    reading.verdict = Judge(reads, nodes);
    const bool later = reading.verdict == Verdict::kReadAgainLater;
    if (!later && reading.verdict != Verdict::kReadAgain) {
      reading.results = std::move(reads.back());
      return reading;
    }
    if (reading.checkpoint.ok()) continue;
    if (later) WaitToReadAgain();
    DropPages(path, disk_);
    reading.checkpoint = Open(path, job);
  }
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
  if (candidates.empty()) {
    outcome.status = absl::NotFoundError("no checkpoint to restore from");
    return outcome;
  }
  ASSIGN_OR_RETURN(const std::vector<std::string> nodes, Nodes());
  Problems reasons;
  for (const Candidate& candidate : candidates) {
    const std::string path = files::JoinPath(options_.directory, candidate.name);
    ASSIGN_OR_RETURN(const Reading reading, Read(candidate, nodes));
    absl::Status status = Combine(reading.results);
    if (reading.verdict == Verdict::kWhole) {
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
    if (reading.verdict == Verdict::kOthersReadIt) {
      // The checkpoint exists and is complete: what these ranks see of the file system is at fault.
      outcome.at_fault = Failed(reading.results);
      outcome.status = absl::InternalError(
          absl::StrCat(path, ": ", status.message(), "; the other ranks read it"));
      return outcome;
    }
    const bool damaged = reading.verdict == Verdict::kDamaged;
    if (damaged && candidate.put_aside) {
      absl::Status epoch;
      if (communicator_->rank() == 0) {
        epoch = CheckEpochHere();
        // If the rename fails, continue: the checkpoint is damaged in any case.
        if (epoch.ok()) SetAside(path).IgnoreError();
      }
      // If rank 0 must not rename it, all ranks stop here, by the same error.
      ASSIGN_OR_RETURN(const auto renamed,
                       Exchange(*communicator_, ToResult(epoch), "checkpoint set aside", 0));
      if (absl::IsAborted(renamed[0].status())) return EndOfEpoch(renamed[0].status());
      RETURN_IF_ERROR(renamed[0].status());
    }
    outcome.rejected.push_back({candidate.name, damaged, Message(status)});
    reasons.Add(absl::StrCat(candidate.name, ": ", status.message()));
  }
  outcome.status = absl::NotFoundError(
      absl::StrCat("no checkpoint can be read in ", options_.directory, ": ", reasons.Text()));
  return outcome;
}

}  // namespace muster::checkpoint
