#include "coordinator/webhook/body.h"

#include <nlohmann/json.hpp>

#include "common/utf8/utf8.h"
#include "coordinator/jobs/failure.h"

namespace muster::webhook {
namespace {

using Json = nlohmann::ordered_json;

// How many bytes JSON needs for a character that begins with this byte and has this length.
size_t EscapedSize(char first, size_t length) {
  switch (first) {
    case '"':
    case '\\':
    case '\b':
    case '\f':
    case '\n':
    case '\r':
    case '\t':
      return 2;
    default:
      return static_cast<unsigned char>(first) < 0x20 ? sizeof("\\u0000") - 1 : length;
  }
}

std::string Cut(const std::string& text) {
  // A little more than can be needed.
  std::string valid = ValidUtf8(text.substr(0, kLongestText + 4));
  size_t size = 0;
  for (size_t at = 0; at < valid.size();) {
    const size_t length = Utf8CharacterLength(valid, at);
    size += EscapedSize(valid[at], length);
    if (size > kLongestText) return valid.substr(0, at) + "...";
    at += length;
  }
  return valid;
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
               {"state", jobs::Name(job.state())},
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
