// ClusterService.Backup: a copy of the store, made while the store is in use, and sent in pieces.
#ifndef MUSTER_COORDINATOR_SERVICE_BACKUP_H_
#define MUSTER_COORDINATOR_SERVICE_BACKUP_H_

#include <grpcpp/support/server_callback.h>

#include <atomic>
#include <string>

#include "coordinator/store/store.h"
#include "proto/muster/v1/cluster_service.pb.h"

namespace muster::service {

// The store and `running` outlive the server. Only one backup runs at a time: RESOURCE_EXHAUSTED
// BACKUP_RUNNING; `running` says whether one does. The copy is made on a thread of its own, and
// removed once it is sent. `requester` is for the daemon's log.
grpc::ServerWriteReactor<v1::BackupChunk>* StartBackup(const std::string& requester,
                                                       store::Store* store,
                                                       std::atomic<bool>* running);

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_BACKUP_H_
