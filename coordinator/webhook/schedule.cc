#include "coordinator/webhook/schedule.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"

namespace muster::webhook {

void Schedule::Add(store::DeliveryRow message) {
  queues_[message.job_id].messages.push_back(std::move(message));
}

void Schedule::Withdraw(uint64_t number) {
  for (auto queue = queues_.begin(); queue != queues_.end(); ++queue) {
    const size_t removed = std::erase_if(
        queue->second.messages,
        [number](const store::DeliveryRow& message) { return message.number == number; });
    if (removed == 0) continue;
    if (queue->second.messages.empty()) queues_.erase(queue);
    return;
  }
}

const store::DeliveryRow* Schedule::Due(absl::Time now) const {
  if (now < wait_.until) return nullptr;
  const store::DeliveryRow* oldest = nullptr;
  for (const auto& [job, queue] : queues_) {
    if (now < queue.wait.until) continue;
    const store::DeliveryRow& first = queue.messages.front();
    if (oldest == nullptr || first.number < oldest->number) oldest = &first;
  }
  return oldest;
}

absl::Time Schedule::NextDue() const {
  absl::Time next = absl::InfiniteFuture();
  for (const auto& [job, queue] : queues_) next = std::min(next, queue.wait.until);
  return std::max(next, wait_.until);
}

Schedule::Result Schedule::Take(const store::DeliveryRow& message, const Answer& answer,
                                absl::Time now, double jitter) {
  const Meaning meaning = MeaningOf(answer);
  const bool fails = meaning == Meaning::kMessageFailed || meaning == Meaning::kReceiverFailed;
  const std::string why = meaning == Meaning::kAccepted ? "" : Describe(answer);
  const std::string before = std::exchange(trouble_, fails ? why : "");
  absl::Duration wait;
  if (meaning == Meaning::kReceiverFailed) {
    wait = PutOff(&wait_, answer, now, jitter);
    if (!fails_since_.has_value()) fails_since_ = now;
  } else {
    wait_ = {};
    fails_since_.reset();
  }
  const auto queue = queues_.find(message.job_id);
  if (queue == queues_.end() || queue->second.messages.front().number != message.number) return {};
  if (meaning == Meaning::kMessageFailed) wait = PutOff(&queue->second.wait, answer, now, jitter);
  const std::string what =
      absl::StrCat("message ", message.id, " about job '", message.job_id, "'");
  if (!fails) {
    Remove(queue);
    const bool refused = meaning == Meaning::kRefused;
    return {.settled = {message.number},
            .say = refused          ? absl::StrCat(why, "; ", what, " is given up")
                   : before.empty() ? ""
                                    : "accepts messages again"};
  }
  const bool too_old = now - message.create_time >= retries_.give_up_after;
  if (too_old && meaning == Meaning::kMessageFailed) {
    Remove(queue);
    return {.settled = {message.number},
            .say = absl::StrCat(why, "; ", what, " is given up after ",
                                absl::FormatDuration(retries_.give_up_after))};
  }
  if (too_old && now - *fails_since_ >= retries_.give_up_all_after) {
    Result result = {.settled = RemoveOld(now)};
    const size_t more = result.settled.size() - 1;
    result.say = absl::StrCat(why, "; ", what, more > 0 ? absl::StrCat(" and ", more, " more") : "",
                              more > 0 ? " are" : " is", " given up after ",
                              absl::FormatDuration(retries_.give_up_after));
    return result;
  }
  if (why == before) return {};
  return {.say = absl::StrCat(why, "; ", what, " is sent again in ",
                              absl::FormatDuration(absl::Trunc(wait, absl::Milliseconds(1))))};
}

std::vector<uint64_t> Schedule::RemoveOld(absl::Time now) {
  std::vector<uint64_t> removed;
  for (auto queue = queues_.begin(); queue != queues_.end();) {
    std::deque<store::DeliveryRow>& messages = queue->second.messages;
    while (!messages.empty() && now - messages.front().create_time >= retries_.give_up_after) {
      removed.push_back(messages.front().number);
      messages.pop_front();
    }
    queue = messages.empty() ? queues_.erase(queue) : std::next(queue);
  }
  return removed;
}

absl::Duration Schedule::PutOff(Wait* wait, const Answer& answer, absl::Time now,
                                double jitter) const {
  absl::Duration next = retries_.first;
  for (uint32_t i = 0; i < wait->failures && next < retries_.longest; ++i) next *= 2;
  next = std::min(next, retries_.longest) * (0.5 + jitter / 2);
  if (answer.retry_after.has_value()) {
    next = std::max(next, std::min(*answer.retry_after, retries_.longest_asked_for));
  }
  ++wait->failures;
  wait->until = now + next;
  return next;
}

void Schedule::Remove(std::map<std::string, JobQueue>::iterator queue) {
  queue->second.wait = {};
  queue->second.messages.pop_front();
  if (queue->second.messages.empty()) queues_.erase(queue);
}

size_t Schedule::size() const {
  size_t size = 0;
  for (const auto& [job, queue] : queues_) size += queue.messages.size();
  return size;
}

}  // namespace muster::webhook
