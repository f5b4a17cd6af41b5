// The choice of the checkpoint from which a session starts.
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
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

absl::StatusOr<Reader> Open(const std::string& path, const std::string& job) {
  absl::StatusOr<Reader> reader = Reader::Open(path);
  if (!reader.ok() || job.empty() || reader->manifest().job == job) return reader;
  return absl::DataLossError(absl::StrCat(path, ": expected a checkpoint of job '", job,
                                          "', found one of job '", reader->manifest().job, "'"));
}

// Drops the pages of the files from the page cache, as far as possible. Reads use pages that stay.
void DropPages(const std::string& directory, files::Disk& disk) {
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    std::error_code ignored;
    if (it->is_regular_file(ignored)) disk.DropPages(it->path().string()).IgnoreError();
  }
}

// The limit on blocks that a rank reports as unreadable. More blocks would not change the verdict.
constexpr size_t kMostTold = 64;

std::string ToText(const Blocks& blocks) {
  std::string text;
  size_t told = 0;
  for (const auto& [file, number] : blocks) {
    if (++told > kMostTold) break;
    absl::StrAppend(&text, number, " ", file, "\n");
  }
  return text;
}

Blocks BlocksFromText(const std::string& text) {
  Blocks blocks;
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    const std::pair<absl::string_view, std::string> parts =
        absl::StrSplit(line, absl::MaxSplits(' ', 1));
    Block block{parts.second, 0};
    if (absl::SimpleAtoi(parts.first, &block.number)) blocks.insert(block);
  }
  return blocks;
}

}  // namespace

struct Saver::Reading {
  // The results of all ranks in the last read.
  std::vector<PartResult> results;
  Verdict verdict = Verdict::kUnread;
};

absl::StatusOr<std::vector<std::string>> Saver::Nodes() {
  const std::string& node = options_.node;
  // The node id is sent as a hash, which has a fixed size and fits into the form of a result.
  const PartResult mine = manifest::FileRecord{"", 0, files::HashBytes(node.data(), node.size())};
  ASSIGN_OR_RETURN(const auto told, Exchange(*communicator_, mine, "nodes", 0));
  std::vector<std::string> nodes;
  for (const PartResult& one : told) nodes.push_back(one->hash);
  return nodes;
}

void Saver::WaitToReadAgain() {
  // The wait is short and does not depend on other ranks, so it counts as activity, not as hanging.
  activity::Moved();
  if (options_.wait) {
    options_.wait(kBetweenReads);
  } else {
    // The sleep avoids absl::SleepFor (common/steady/condition.h).
    std::this_thread::sleep_for(absl::ToChronoNanoseconds(kBetweenReads));
  }
  activity::Moved();
}

absl::StatusOr<Saver::Reading> Saver::ReadTogether(const std::string& path,
                                                   const std::vector<std::string>& nodes,
                                                   const Attempt& attempt) {
  std::vector<std::vector<PartResult>> reads;
  Blocks told;  // unreadable for some rank: all ranks try these blocks
  absl::Status mine = absl::UnknownError("not read yet");
  while (true) {
    Blocks failed;
    mine = attempt(/*own=*/!mine.ok(), told, &failed);
    ASSIGN_OR_RETURN(auto results, Exchange(*communicator_, ToResult(mine), "checkpoint read",
                                            static_cast<int64_t>(reads.size())));
    reads.push_back(std::move(results));
    Comparison comparison;
    if (!Failed(reads.back()).empty()) {
      ASSIGN_OR_RETURN(const auto texts,
                       GatherTexts(*communicator_, ToText(failed), "unreadable blocks",
                                   static_cast<int64_t>(reads.size())));
      comparison.common = false;
      std::map<Block, size_t> ranks;  // the number that could not read the block
      for (const std::string& text : texts) {
        for (const Block& block : BlocksFromText(text)) ++ranks[block];
      }
      for (const auto& [block, count] : ranks) {
        if (!told.contains(block) && count < texts.size()) comparison.complete = false;
        if (count == texts.size()) comparison.common = true;
      }
      for (const auto& [block, count] : ranks) told.insert(block);
    }
    const Verdict verdict = Judge(reads, nodes, comparison);
    const bool later = verdict == Verdict::kReadAgainLater;
    if (!later && verdict != Verdict::kReadAgain) return Reading{std::move(reads.back()), verdict};
    if (later && !mine.ok()) WaitToReadAgain();
    DropPages(path, disk_);
  }
}

absl::StatusOr<RestoreOutcome> Saver::Restore(const std::vector<std::string>& names,
                                              const State& state) {
  std::vector<Candidate> candidates;
  for (const std::string& name : names) candidates.push_back({.name = name});
  return Restore(candidates, [&state](const manifest::Manifest&) { return state; });
}

absl::StatusOr<Saver::Reading> Saver::OpenTogether(const Candidate& candidate,
                                                   const std::vector<std::string>& nodes,
                                                   absl::StatusOr<Reader>* reader) {
  const std::string path = files::JoinPath(options_.directory, candidate.name);
  const auto open = [&](bool own, const Blocks& told, Blocks* failed) -> absl::Status {
    *reader = Open(path, candidate.own ? options_.job : "");
    if (!reader->ok()) {
      failed->insert({manifest::kFileName, Block::kWholeFile});
      return reader->status();
    }
    if (candidate.recorded) return absl::OkStatus();
    Blocks mine = told;
    const std::vector<manifest::FileRecord>& files = (*reader)->manifest().files;
    for (size_t file = communicator_->rank(); own && file < files.size();
         file += communicator_->world_size()) {
      mine.insert({files[file].name, Block::kWholeFile});
    }
    return (*reader)->Read({}, Reader::Into::kNothing, mine, failed);
  };
  return ReadTogether(path, nodes, open);
}

absl::StatusOr<Saver::Reading> Saver::FillTogether(const std::string& path,
                                                   const std::vector<std::string>& nodes,
                                                   const Reader& reader,
                                                   const std::vector<Reader::Copy>& copies) {
  const std::vector<Reader::Copy> none;
  return ReadTogether(path, nodes, [&](bool own, const Blocks& told, Blocks* failed) {
    return reader.Read(own ? copies : none, Reader::Into::kTensors, told, failed);
  });
}

absl::StatusOr<RestoreOutcome> Saver::Restore(const std::vector<Candidate>& candidates,
                                              const StateFor& state_for, Surplus surplus) {
  RestoreOutcome outcome;
  if (candidates.empty()) {
    outcome.status = absl::NotFoundError("no checkpoint to restore from");
    return outcome;
  }
  ASSIGN_OR_RETURN(const std::vector<std::string> nodes, Nodes());
  Problems reasons;
  for (const Candidate& candidate : candidates) {
    const std::string path = files::JoinPath(options_.directory, candidate.name);
    absl::StatusOr<Reader> reader = absl::UnknownError("not read yet");
    ASSIGN_OR_RETURN(Reading reading, OpenTogether(candidate, nodes, &reader));
    if (reading.verdict == Verdict::kWhole) {
      ASSIGN_OR_RETURN(const State state, state_for(reader->manifest()));
      const auto copies = reader->Plan(state, surplus);
      ASSIGN_OR_RETURN(const auto fits,
                       Exchange(*communicator_, ToResult(copies.status()), "checkpoint fits", 0));
      outcome.status = Annotate(Combine(fits), path);
      if (!outcome.status.ok()) return outcome;
      ASSIGN_OR_RETURN(reading, FillTogether(path, nodes, *reader, *copies));
      if (reading.verdict == Verdict::kWhole) {
        outcome.name = candidate.name;
        outcome.manifest = reader->manifest();
        return outcome;
      }
      if (!candidate.recorded) {
        // The whole checkpoint was readable a moment ago. The tensors may contain anything now, and
        // the job might start from them if nothing is recorded.
        outcome.status = absl::InternalError(
            absl::StrCat(path, ": ", Combine(reading.results).message(), "; it was whole before"));
        return outcome;
      }
    }
    absl::Status status = Combine(reading.results);
    if (reading.verdict == Verdict::kOthersReadIt) {
      // The checkpoint exists and is complete, so the failed ranks' view of the file system is at
      // fault.
      outcome.at_fault = Failed(reading.results);
      outcome.status = absl::InternalError(
          absl::StrCat(path, ": ", status.message(), "; the other ranks read it"));
      return outcome;
    }
    const bool damaged = reading.verdict == Verdict::kDamaged;
    if (damaged && candidate.recorded) {
      absl::Status epoch;
      if (communicator_->rank() == 0) {
        epoch = CheckEpochHere();
        // A failed rename changes nothing: the checkpoint is damaged in any case.
        if (epoch.ok()) SetAside(path).IgnoreError();
      }
      // All ranks stop here with the same error if rank 0 must not rename the checkpoint.
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
