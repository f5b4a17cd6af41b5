#include "coordinator/cluster/state/jobs.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace muster::cluster {
namespace {

// The number of versions that may be shown before a higher ceiling must be stored.
constexpr uint64_t kVersionReserve = 1000;

void RaiseCeiling(jobs::Job* job) { job->version_ceiling = job->version + kVersionReserve; }

}  // namespace

jobs::Job* Jobs::Load(const jobs::Job& stored) {
  Entry& entry = entries_[stored.id];
  entry = {.job = stored, .rows = store::JobRows(stored), .notes = {}};
  entry.notes.known_since = stored.generation;
  NotePlaces(stored, &entry.notes);
  spec_bytes_ += stored.spec.size();
  submitted_[stored.number] = stored.id;
  if (!stored.terminal()) open_[stored.number] = stored.id;
  return &entry.job;
}

jobs::Job* Jobs::Add(const std::string& id, const std::string& name, const std::string& spec) {
  const uint64_t number = last_number_ + 1;
  std::string chosen = id;
  for (uint64_t suffix = number; id.empty();) {
    chosen = absl::StrCat(name, "-", suffix++);
    if (!entries_.contains(chosen)) break;
  }
  const auto [entry, added] = entries_.try_emplace(chosen);
  if (!added) return nullptr;
  last_number_ = number;
  jobs::Job& job = entry->second.job;
  job.id = chosen;
  job.number = number;
  job.spec = spec;
  spec_bytes_ += spec.size();
  submitted_[number] = chosen;
  open_[number] = chosen;
  return &job;
}

void Jobs::Remove(const std::string& id) {
  const auto entry = entries_.find(id);
  if (entry == entries_.end()) return;
  submitted_.erase(entry->second.job.number);
  open_.erase(entry->second.job.number);
  spec_bytes_ -= entry->second.job.spec.size();
  dirty_.erase(id);
  entries_.erase(entry);
}

void Jobs::ChangeSettings(jobs::Job* job, jobs::NewSettings settings, const std::string& requester,
                          uint64_t command, absl::Time now) {
  spec_bytes_ -= job->spec.size();
  jobs::ChangeSettings(job, std::move(settings), requester, command, now);
  spec_bytes_ += job->spec.size();
}

const jobs::Job* Jobs::Find(const std::string& id) const {
  const auto entry = entries_.find(id);
  return entry == entries_.end() ? nullptr : &entry->second.job;
}

std::vector<jobs::Job*> Jobs::Open() {
  std::vector<jobs::Job*> open;
  open.reserve(open_.size());
  for (const auto& [number, id] : open_) open.push_back(&entries_.at(id).job);
  return open;
}

std::vector<const jobs::Job*> Jobs::Open() const {
  std::vector<const jobs::Job*> open;
  open.reserve(open_.size());
  for (const auto& [number, id] : open_) open.push_back(&entries_.at(id).job);
  return open;
}

std::map<std::string, std::vector<uint32_t>> Jobs::RanksOn(const std::string& node) const {
  std::map<std::string, std::vector<uint32_t>> ranks_of;
  for (const jobs::Job* job : Open()) {
    if (!job->live()) continue;
    for (uint32_t rank = 0; rank < job->ranks.size(); ++rank) {
      const jobs::Rank& r = job->ranks[rank];
      if (r.node == node && !r.exited) ranks_of[job->id].push_back(rank);
    }
  }
  return ranks_of;
}

std::vector<jobs::Job*> Jobs::LiveOn(const std::string& node) {
  const auto ranks = RanksOn(node);
  std::vector<jobs::Job*> found = Open();
  std::erase_if(found, [&](const jobs::Job* job) { return !ranks.contains(job->id); });
  return found;
}

jobs::Rank* Jobs::CurrentRank(const membership::WorkerId& id) {
  jobs::Job* job = Find(id.job);
  if (job == nullptr || !job->live() || job->generation != id.generation ||
      id.rank >= job->ranks.size()) {
    return nullptr;
  }
  jobs::Rank& rank = job->ranks[id.rank];
  return rank.exited || rank.incarnation != id.incarnation ? nullptr : &rank;
}

bool Jobs::MayBeOn(const std::string& node, const membership::WorkerId& worker) const {
  const jobs::Job* job = Find(worker.job);
  // The answer does not matter: handlers ignore reports about an unknown job or generation.
  if (job == nullptr || worker.generation > job->generation) return true;
  if (worker.generation == job->generation) {
    const bool known = worker.rank < job->ranks.size() &&
                       job->ranks[worker.rank].incarnation == worker.incarnation;
    return !known || job->ranks[worker.rank].node == node;
  }
  // Reports and log lines of earlier generations may come late.
  const JobNotes& notes = NotesOf(worker.job);
  return worker.generation < notes.known_since || notes.nodes.contains(node);
}

void Jobs::Changed(jobs::Job* job) {
  ++job->version;
  if (job->terminal()) {
    job->version_ceiling = job->version;
    open_.erase(job->number);
  } else {
    if (job->version > job->version_ceiling) RaiseCeiling(job);
    open_[job->number] = job->id;
  }
  dirty_[job->id].shows_more = false;
}

bool Jobs::ShowsMore(jobs::Job* job) {
  if (job->version < entries_.at(job->id).rows.version_ceiling()) {
    ++job->version;
    return true;
  }
  RaiseCeiling(job);
  dirty_[job->id].shows_more = true;
  return false;
}

Jobs::Changes Jobs::TakeChanges() {
  Changes changes;
  for (const auto& [id, what] : std::exchange(dirty_, {})) {
    auto& [job, rows, notes] = entries_.at(id);
    if (what.shows_more) ++job.version;
    store::Batch::JobRow row =
        what.lists ? rows.TakeChanges(&job) : rows.TakeRanks(job, what.ranks);
    if (!row.empty()) changes.rows.push_back(std::move(row));
    for (const jobs::JobEvent& event : job.events) {
      if (event.number > job.stored_events) changes.events.push_back({id, event});
    }
    job.stored_events = job.newest_event();
    changes.changed.push_back(id);
  }
  return changes;
}

void NotePlaces(const jobs::Job& job, JobNotes* notes) {
  for (const jobs::Rank& rank : job.ranks) notes->nodes.insert(rank.node);
}

}  // namespace muster::cluster
