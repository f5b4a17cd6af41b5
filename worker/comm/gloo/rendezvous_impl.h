// The contents of a RendezvousStore. Only comm/gloo includes this header, because it includes c10d.
#ifndef MUSTER_WORKER_COMM_GLOO_RENDEZVOUS_IMPL_H_
#define MUSTER_WORKER_COMM_GLOO_RENDEZVOUS_IMPL_H_

#include "torch/csrc/distributed/c10d/Store.hpp"
#include "worker/comm/gloo/rendezvous.h"

namespace muster::comm {

struct RendezvousStore::Impl {
  c10::intrusive_ptr<c10d::Store> store;
  uint16_t port = 0;
};

}  // namespace muster::comm

#endif  // MUSTER_WORKER_COMM_GLOO_RENDEZVOUS_IMPL_H_
