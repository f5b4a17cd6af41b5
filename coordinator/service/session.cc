#include "coordinator/service/session.h"

#include <utility>
#include <vector>

namespace muster::service {

PeerStream* PeerStreams::Find(cluster::PeerStreamId id) const {
  const auto found = sessions_.find(id);
  return found == sessions_.end() ? nullptr : found->second;
}

void PeerStreams::EndAll(const absl::Status& why) {
  ended_ = why;
  const auto all = std::exchange(sessions_, {});
  for (const auto& [id, session] : all) session->End(why);
}

void PeerStreams::EndUnanswered(const absl::Status& why) {
  std::vector<PeerStream*> unanswered;
  for (const auto& [id, session] : sessions_) {
    if (!session->Answered()) unanswered.push_back(session);
  }
  for (PeerStream* session : unanswered) session->End(why);
}

}  // namespace muster::service
