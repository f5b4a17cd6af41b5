// Every method that a coordinator can have, from the services' descriptors. For tests.
#ifndef MUSTER_COMMON_RPC_ALL_METHODS_H_
#define MUSTER_COMMON_RPC_ALL_METHODS_H_

#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor_database.h>

#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/muster/v1/agent_service.pb.h"
#include "proto/muster/v1/cluster_service.pb.h"
#include "proto/muster/v1/control_service.pb.h"
#include "proto/muster/v1/job_service.pb.h"
#include "proto/muster/v1/operation_service.pb.h"
#include "proto/muster/v1/worker_service.pb.h"

namespace muster {

// "/muster.v1.JobService/GetJob".
inline std::set<std::string> AllMethods() {
  // A linker leaves out a file of messages that nobody names. A new service's file must be added
  // here.
  for (const auto* message :
       {v1::AgentMessage::descriptor(), v1::ListNodesRequest::descriptor(),
        v1::RefreshRequest::descriptor(), v1::GetJobRequest::descriptor(),
        v1::GetOperationRequest::descriptor(), v1::WorkerMessage::descriptor()}) {
    if (message->file()->service_count() == 0) return {};
  }
  std::vector<std::string> files;
  google::protobuf::DescriptorPool::internal_generated_database()->FindAllFileNames(&files);
  // The methods of gRPC itself.
  std::set<std::string> methods = {
      "/grpc.health.v1.Health/Check",
      "/grpc.health.v1.Health/Watch",
      "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
  };
  for (const std::string& name : files) {
    if (name.rfind("proto/muster/", 0) != 0) continue;
    const auto* file = google::protobuf::DescriptorPool::generated_pool()->FindFileByName(name);
    for (int i = 0; i < file->service_count(); ++i) {
      for (int j = 0; j < file->service(i)->method_count(); ++j) {
        methods.insert(absl::StrCat("/", file->service(i)->full_name(), "/",
                                    file->service(i)->method(j)->name()));
      }
    }
  }
  return methods;
}

}  // namespace muster

#endif  // MUSTER_COMMON_RPC_ALL_METHODS_H_
