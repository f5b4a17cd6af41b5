#include "worker/checkpoint/found.h"

#include <algorithm>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "common/files/files.h"
#include "common/manifest/manifest.h"
#include "common/manifest/name.h"
#include "common/status/status.h"
#include "worker/checkpoint/directory.h"

namespace muster::checkpoint {
namespace {

bool Contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// The reason in its manifest why it does not continue the training; empty: none.
std::string Objection(const manifest::Manifest& manifest, const std::string& job,
                      const std::string& instance) {
  if (manifest.job != job) {
    return absl::StrCat("it was written by job '", manifest.job, "', not by '", job, "'");
  }
  if (manifest.job_instance != instance) {
    return absl::StrCat("it was written by another job of this name, submitted at ",
                        manifest.job_instance);
  }
  return "";
}

}  // namespace

bool WrittenBefore(const std::string& a, const std::string& b) {
  const auto first = manifest::ParseFinalName(a);
  const auto second = manifest::ParseFinalName(b);
  if (!first.has_value() || !second.has_value()) return !first.has_value() && second.has_value();
  return std::tie(first->generation, first->step) < std::tie(second->generation, second->step);
}

void Judge(const std::vector<std::string>& recorded, int64_t generation,
           std::vector<Found>* found) {
  std::string newest_recorded;
  for (const std::string& name : recorded) {
    if (newest_recorded.empty() || WrittenBefore(newest_recorded, name)) newest_recorded = name;
  }
  for (Found& one : *found) {
    if (one.reason.empty() && one.generation >= generation) {
      one.reason = absl::StrCat("it is of generation ", one.generation,
                                ", which is not older than this generation, ", generation);
    }
    if (one.reason.empty() && !newest_recorded.empty() &&
        WrittenBefore(one.name, newest_recorded)) {
      one.reason = absl::StrCat("it is older than ", newest_recorded, ", which is recorded");
    }
  }
  // From the newest generation to the oldest: a later generation decided from which step training
  // continued.
  const Found* later = nullptr;
  for (auto one = found->rbegin(); one != found->rend(); ++one) {
    if (!one->reason.empty()) continue;
    if (later != nullptr && later->generation > one->generation && later->step < one->step) {
      one->reason = absl::StrCat("generation ", later->generation,
                                 " went on from an earlier step: it wrote ", later->name);
    } else {
      later = &*one;
    }
  }
}

absl::StatusOr<std::vector<Found>> FindUnknown(const std::string& folder, const Known& known,
                                               const std::string& job, const std::string& instance,
                                               int64_t generation) {
  ASSIGN_OR_RETURN(std::vector<std::string> names, ListCheckpoints(folder));
  std::sort(names.begin(), names.end(), WrittenBefore);
  std::vector<Found> found;
  for (const std::string& name : names) {
    if (Contains(known.recorded, name) || Contains(known.retired, name)) continue;
    const auto parsed = *manifest::ParseFinalName(name);
    Found one{.name = name, .step = parsed.step, .generation = parsed.generation};
    const auto manifest = manifest::Read(files::JoinPath(folder, name));
    if (!manifest.ok()) {
      one.reason = Message(manifest.status());
    } else {
      one.last_command = manifest->last_command;
      one.reason = Objection(*manifest, job, instance);
    }
    found.push_back(std::move(one));
  }
  Judge(known.recorded, generation, &found);
  return found;
}

}  // namespace muster::checkpoint
