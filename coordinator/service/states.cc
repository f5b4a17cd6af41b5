#include "coordinator/service/states.h"

namespace muster::service {

v1::RankStatus::State StateOf(const jobs::Rank& rank, const membership::Worker* worker) {
  if (rank.exited || worker == nullptr) return v1::RankStatus::EXITED;
  if (worker->attached()) return v1::RankStatus::ATTACHED;
  return worker->lease_end == absl::InfiniteFuture() ? v1::RankStatus::STARTING
                                                     : v1::RankStatus::DETACHED;
}

bool Trains(const jobs::Rank& rank) {
  return rank.session_started && !rank.finished && !rank.exited;
}

v1::Node::State StateOf(const cluster::NodeView& view, bool attached) {
  using View = cluster::NodeView;
  switch (view.what) {
    case View::kDraining:
      return v1::Node::DRAINING;
    case View::kCordoned:
      return v1::Node::CORDONED;
    case View::kLeftOut:
      return v1::Node::LEFT_OUT;
    case View::kOpen:
      break;
  }
  return attached ? v1::Node::ATTACHED : v1::Node::DETACHED;
}

}  // namespace muster::service
