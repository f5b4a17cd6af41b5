#include "coordinator/jobs/events.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "common/utf8/utf8.h"

namespace muster::jobs {

void DropOldest(std::vector<JobEvent>* events) {
  const bool sample = events->back().reason == kSampleReason;
  const auto is_of_kind = [sample](const JobEvent& event) {
    return (event.reason == kSampleReason) == sample;
  };
  if (std::count_if(events->begin(), events->end(), is_of_kind) > ptrdiff_t{kKeptEvents})
    events->erase(std::find_if(events->begin(), events->end(), is_of_kind));
}

void AddEvent(Job* job, absl::Time now, const std::string& reason, const std::string& message,
              std::optional<uint64_t> step) {
  job->events.push_back({.number = job->newest_event() + 1,
                         .time = now,
                         .generation = job->generation,
                         .step = step.value_or(job->step),
                         .reason = reason,
                         .message = message});
  DropOldest(&job->events);
}

bool SameButForNumbers(std::string a, std::string b) {
  for (std::string* text : {&a, &b}) {
    text->erase(std::remove_if(text->begin(), text->end(),
                               [](unsigned char c) { return absl::ascii_isdigit(c); }),
                text->end());
  }
  return a == b;
}

void TakeNotice(Job* job, const std::string& reason, const std::string& message, uint64_t step,
                absl::Time now) {
  constexpr size_t kLongestReason = 40;
  constexpr size_t kLongestMessage = 1000;
  const bool is_code = !reason.empty() && reason.size() <= kLongestReason &&
                       std::all_of(reason.begin(), reason.end(), [](unsigned char c) {
                         return absl::ascii_isupper(c) || absl::ascii_isdigit(c) || c == '_';
                       });
  if (!is_code) return;
  const std::string cut = message.substr(0, kLongestMessage);
  const std::string text = cut.substr(0, ValidUtf8Prefix(cut));
  // These notices are told once for each file, stage or checkpoint. Only names and numbers tell
  // their messages apart.
  const bool of_one_thing = reason == "PREDICTIONS_WRITTEN" || reason == "EARLY_STOPPED" ||
                            reason == "BEST_CHECKPOINT_LOST";
  // A text of the model is told after each validation, also if the text is the same.
  const bool of_a_step = reason == kSampleReason;
  for (const JobEvent& event : job->events) {
    if (event.reason != reason || (of_a_step && event.step != step)) continue;
    if (of_one_thing ? event.message == text : SameButForNumbers(event.message, text)) return;
  }
  AddEvent(job, now, reason, text, step);
}

}  // namespace muster::jobs
