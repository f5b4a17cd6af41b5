#include "coordinator/service/session.h"

namespace muster::service {

Session* Sessions::Find(cluster::SessionId id) const {
  const auto found = sessions_.find(id);
  return found == sessions_.end() ? nullptr : found->second;
}

void Sessions::EndAll(const absl::Status& why) {
  ended_ = why;
  const auto all = std::exchange(sessions_, {});
  for (const auto& [id, session] : all) session->End(why);
}

}  // namespace muster::service
