// The headers that most files with gRPC include.
#pragma once

#include "third_party/precompiled/absl.hh"

#include <google/protobuf/text_format.h>
#include <google/protobuf/util/json_util.h>
#include <grpcpp/grpcpp.h>

#include "absl/synchronization/mutex.h"
#include "proto/muster/v1/agent_service.grpc.pb.h"
#include "proto/muster/v1/cluster_service.grpc.pb.h"
#include "proto/muster/v1/control_service.grpc.pb.h"
#include "proto/muster/v1/job_service.grpc.pb.h"
#include "proto/muster/v1/operation_service.grpc.pb.h"
#include "proto/muster/v1/worker_service.grpc.pb.h"
