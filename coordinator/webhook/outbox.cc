#include "coordinator/webhook/outbox.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/utf8/utf8.h"
#include "coordinator/jobs/failure.h"

namespace muster::webhook {
namespace {

using Json = nlohmann::ordered_json;

// Returns the bytes that JSON needs for a character that begins with this byte and has this length.
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
  // The prefix is a little longer than any result.
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
  // A failure of an older generation does not belong to this change.
  const auto failure = jobs::RootCause(job.failures);
  if (failure.has_value() && failure->root.generation == job.generation) {
    body["failure"] = {{"rank", failure->root.rank},
                       {"node", Cut(failure->root.node)},
                       {"step", failure->root.step},
                       {"reason", Cut(failure->root.reason)}};
  }
  return body.dump();
}

Outbox::Outbox(OutboxOptions options, const std::vector<store::DeliveryRow>& stored)
    : options_(std::move(options)), shown_(ShownApart(options_.receivers)) {
  size_t of_others = 0;
  for (const store::DeliveryRow& row : stored) {
    newest_ = std::max(newest_, row.number);
    const bool wanted =
        std::any_of(options_.receivers.begin(), options_.receivers.end(),
                    [&](const Url& receiver) { return receiver.text == row.receiver; });
    if (!wanted) {
      ++of_others;
      changes_.removed.push_back(row.number);
      continue;
    }
    Add(row);
    changes_.send.push_back(row);
  }
  if (of_others > 0) {
    changes_.say.push_back(absl::StrCat("webhook: dropped ", of_others,
                                        " messages for receivers that no --webhook names any more; "
                                        "they were not accepted in time"));
  }
}

void Outbox::Know(const jobs::Job& job) {
  if (!options_.receivers.empty()) known_[job.id] = job.state();
}

void Outbox::Observe(const jobs::Job& job, absl::Time now) {
  if (options_.receivers.empty()) return;
  const auto known = known_.find(job.id);
  const bool is_new = known == known_.end();
  if (!is_new && known->second == job.state()) return;
  const std::string id = options_.new_id();
  const std::string body =
      BodyOf(id, job, is_new ? std::nullopt : std::optional(known->second), now);
  known_[job.id] = job.state();
  for (size_t i = 0; i < options_.receivers.size(); ++i) {
    const Url& receiver = options_.receivers[i];
    const store::DeliveryRow row = {.number = ++newest_,
                                    .receiver = receiver.text,
                                    .id = id,
                                    .job_id = job.id,
                                    .create_time = now,
                                    .body = body};
    Add(row);
    changes_.added.push_back(row);
    changes_.send.push_back(row);
    DropOldest(receiver, shown_[i]);
  }
}

void Outbox::Add(const store::DeliveryRow& row) {
  pending_[row.number] = {row.receiver, row.job_id};
  of_receiver_[row.receiver].insert(row.number);
}

void Outbox::DropOldest(const Url& receiver, const std::string& shown) {
  std::set<uint64_t>& numbers = of_receiver_[receiver.text];
  if (numbers.size() <= options_.most_pending) return;
  const uint64_t oldest = *numbers.begin();
  changes_.say.push_back(
      absl::StrCat("webhook ", shown, ": ", options_.most_pending,
                   " messages wait to be accepted; dropped the oldest one, about job '",
                   pending_[oldest].job_id, "'"));
  changes_.withdrawn.push_back({receiver.text, oldest});
  Settle(oldest);
}

void Outbox::Forget(const std::string& job_id) { known_.erase(job_id); }

void Outbox::Settle(uint64_t number) {
  const auto pending = pending_.find(number);
  if (pending == pending_.end()) return;
  of_receiver_[pending->second.receiver].erase(number);
  pending_.erase(pending);
  const auto is_it = [number](const store::DeliveryRow& row) { return row.number == number; };
  std::erase_if(changes_.send, is_it);
  // The message may not be stored yet.
  if (std::erase_if(changes_.added, is_it) == 0) changes_.removed.push_back(number);
}

Outbox::Changes Outbox::TakeChanges() { return std::exchange(changes_, {}); }

}  // namespace muster::webhook
