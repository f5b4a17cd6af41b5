#include "coordinator/webhook/body.h"

#include <nlohmann/json.hpp>

#include "common/utf8/utf8.h"
#include "coordinator/jobs/failure.h"

namespace muster::webhook {
namespace {

using Json = nlohmann::ordered_json;

std::string Cut(const std::string& text) {
  if (text.size() <= kLongestText) return ValidUtf8(text);
  const std::string cut = text.substr(0, kLongestText);
  return ValidUtf8(cut.substr(0, ValidUtf8Prefix(cut))) + "...";
}

std::string Rfc3339(absl::Time time) {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%E6SZ", time, absl::UTCTimeZone());
}

}  // namespace

std::string BodyOf(const std::string& id, const jobs::Job& job, std::optional<jobs::State> former,
                   absl::Time now) {
  Json body = {{"id", id},
               {"type", "job.state_changed"},
               {"time", Rfc3339(now)},
               {"job_id", job.id},
               {"job_name", Cut(job.plan.name)},
               {"attempt", job.attempt},
               {"generation", job.generation},
               {"former_state", nullptr},
               {"state", jobs::Name(job.state)},
               {"reason", job.reason_code},
               {"message", Cut(job.state_reason)},
               {"step", job.step},
               {"failure", nullptr}};
  if (former.has_value()) body["former_state"] = jobs::Name(*former);
  // What ended an older generation is not what this change is about.
  const auto failure = jobs::RootCause(job.failures);
  if (failure.has_value() && failure->root.generation == job.generation) {
    body["failure"] = {{"rank", failure->root.rank},
                       {"node", Cut(failure->root.node)},
                       {"step", failure->root.step},
                       {"reason", Cut(failure->root.reason)}};
  }
  return body.dump();
}

}  // namespace muster::webhook
