#include "tests/simulation/start.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/manifest/name.h"
#include "worker/checkpoint/directory.h"

namespace muster::simulation {
namespace {

std::vector<std::string> NamesOf(const std::vector<jobs::Checkpoint>& checkpoints) {
  std::vector<std::string> names;
  for (const jobs::Checkpoint& one : checkpoints) {
    names.push_back(manifest::NameOfDirectory(one.path));
  }
  return names;
}

bool Contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

jobs::ReportedFailure Newer(uint64_t generation) {
  return {.reason = absl::StrCat("the folder has generation ", generation),
          .newer_generation = generation};
}

}  // namespace

std::optional<jobs::ReportedFailure> StaleEpoch(const SharedDisk& disk,
                                                const cluster::WorkerId& leader) {
  const SharedDisk::Epoch& epoch = disk.epochs.at(leader.job);
  if (epoch == SharedDisk::Epoch{leader.generation, leader.incarnation}) return std::nullopt;
  return Newer(epoch.generation);
}

Start FindStart(SharedDisk* disk, const cluster::WorkerId& leader,
                const std::vector<jobs::Checkpoint>& recorded,
                const std::vector<jobs::Checkpoint>& known) {
  if (disk->gone) {
    return {.failure = jobs::ReportedFailure{.reason = "the folder is not there",
                                             .checkpoints_unreadable = !recorded.empty()}};
  }
  const std::string folder = absl::StrCat(leader.job, "/");
  std::vector<std::string> names;
  SharedDisk::Epoch& epoch = disk->epochs[leader.job];
  uint64_t newest = epoch.generation;
  for (const auto& [path, saved] : disk->checkpoints) {
    if (!absl::StartsWith(path, folder)) continue;
    names.push_back(path.substr(folder.size()));
    newest = std::max(newest, saved.generation);
  }
  const SharedDisk::Epoch mine{leader.generation, leader.incarnation};
  if (newest > mine.generation || (epoch.generation == mine.generation && epoch != mine)) {
    return {.failure = Newer(newest)};
  }
  epoch = mine;

  std::sort(names.begin(), names.end(), checkpoint::WrittenBefore);
  const std::vector<std::string> counted = NamesOf(recorded);
  const std::vector<std::string> retired = NamesOf(known);
  std::vector<checkpoint::FoundCheckpoint> found;
  for (const std::string& name : names) {
    if (Contains(counted, name) || Contains(retired, name)) continue;
    const SavedCheckpoint& saved = disk->checkpoints.at(folder + name);
    found.push_back({.name = name,
                     .step = saved.training.step,
                     .generation = static_cast<int64_t>(saved.generation),
                     .last_command = saved.position.taken});
  }
  checkpoint::Judge(counted, static_cast<int64_t>(leader.generation), &found);

  Start start;
  std::vector<std::string> candidates;
  for (const checkpoint::FoundCheckpoint& one : found) {
    if (one.reason.empty()) candidates.push_back(one.name);
    start.found.found.push_back({.step = static_cast<uint64_t>(one.step),
                                 .generation = static_cast<uint64_t>(one.generation),
                                 .path = folder + one.name,
                                 .adopted = one.reason.empty(),
                                 .reason = one.reason});
  }
  for (const std::string& name : counted) {
    if (Contains(names, name)) {
      candidates.push_back(name);
      continue;
    }
    start.missing = folder + name;
    const auto parsed = *manifest::ParseFinalName(name);
    start.found.found.push_back({.step = static_cast<uint64_t>(parsed.step),
                                 .generation = static_cast<uint64_t>(parsed.generation),
                                 .path = start.missing,
                                 .reason = "it could not be read: it is not there"});
  }
  if (candidates.empty() && !counted.empty()) {
    start.failure = jobs::ReportedFailure{.reason = "none of the job's checkpoints can be read",
                                          .checkpoints_unreadable = true};
    return start;
  }
  const auto from =
      std::max_element(candidates.begin(), candidates.end(), checkpoint::WrittenBefore);
  if (from != candidates.end()) start.path = folder + *from;
  return start;
}

}  // namespace muster::simulation
