#include "coordinator/service/session.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace muster::service {

PeerStream* PeerStreams::Find(cluster::PeerStreamId id) const {
  const auto found = sessions_.find(id);
  return found == sessions_.end() ? nullptr : found->second;
}

void PeerStreams::EndAll(const absl::Status& why) {
  ended_ = why;
  const auto all = std::exchange(sessions_, {});
  opened_.clear();
  for (const auto& [id, session] : all) session->End(why);
}

void PeerStreams::EndUnanswered(const absl::Status& why) {
  std::vector<PeerStream*> unanswered;
  for (const auto& [id, session] : sessions_) {
    if (!session->Answered()) unanswered.push_back(session);
  }
  for (PeerStream* session : unanswered) session->End(why);
}

void PeerStreams::EndSilent(absl::Time now) {
  const absl::Duration most = absl::Seconds(kLimits.first_message_seconds);
  std::vector<PeerStream*> silent;
  for (auto one = opened_.begin(); one != opened_.end();) {
    PeerStream* stream = sessions_.at(one->first);
    if (!stream->Heard() && now < one->second + most) {
      ++one;
      continue;
    }
    if (!stream->Heard()) silent.push_back(stream);
    one = opened_.erase(one);
  }
  for (PeerStream* stream : silent) {
    stream->End(Refuse(absl::StatusCode::kDeadlineExceeded, "HELLO_MISSING",
                       absl::StrCat("no message has come over this stream in ",
                                    absl::FormatDuration(most), "; expected a Hello")));
  }
}

}  // namespace muster::service
