// The meeting point of the ranks of one generation: a c10d TCPStore that rank 0 hosts.
//
// Rank 0: HostStore(), then sends host and port() to the others (through the coordinator).
// Others: ConnectStore(host, port, timeout).
// The store is needed until every rank has created every communicator of the generation; rank 0
// keeps the store until then. Keys are never removed: every communicator has its own name
// (GlooOptions::name), and every generation has its own store.
//
// A store does not check who connects. With a secret, a process that does not know the secret can
// neither read nor forge the contents (sealed_store.h).
#ifndef MUSTER_WORKER_COMM_GLOO_RENDEZVOUS_H_
#define MUSTER_WORKER_COMM_GLOO_RENDEZVOUS_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace muster::comm {

// A handle to the store; in the process that hosts the store, also the server. One thread at a time
// may use a handle, and a wait in one thread blocks other threads. Ranks that are threads of one
// process therefore need a handle each.
class RendezvousStore {
 public:
  struct Impl;  // holds the c10d::Store; defined in rendezvous_impl.h for comm/gloo only
  explicit RendezvousStore(std::unique_ptr<Impl> impl);
  ~RendezvousStore();

  // The port that the store listens on.
  uint16_t port() const;

  // Gives a value to all ranks, once for each key. UNAVAILABLE if the store is gone.
  absl::Status Put(const std::string& key, const std::string& value);
  // Waits until a rank has given the value, and returns the value. DEADLINE_EXCEEDED, UNAVAILABLE.
  absl::StatusOr<std::string> Await(const std::string& key, std::chrono::milliseconds timeout);

  const Impl& impl() const { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

// Starts a store on a free port of `host` (a numeric address of this machine), reachable only
// through that address, and connects to the store. UNAVAILABLE if the address cannot be bound.
absl::StatusOr<std::unique_ptr<RendezvousStore>> HostStore(const std::string& host = "127.0.0.1",
                                                           const std::string& secret = "");

// Connects to a store. UNAVAILABLE if the store does not answer within the timeout.
absl::StatusOr<std::unique_ptr<RendezvousStore>> ConnectStore(const std::string& host,
                                                              uint16_t port,
                                                              std::chrono::milliseconds timeout,
                                                              const std::string& secret = "");

}  // namespace muster::comm

#endif  // MUSTER_WORKER_COMM_GLOO_RENDEZVOUS_H_
