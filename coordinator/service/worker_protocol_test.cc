#include "coordinator/service/worker_protocol.h"

#include "common/version/protocol.h"
#include "gtest/gtest.h"

namespace muster::service {
namespace {

TEST(WorkerProtocol, AJobNeedsWorkersThatKnowAllOfItsSettings) {
  v1::JobSpec spec;
  spec.mutable_start()->set_checkpoint("/c");
  EXPECT_EQ(WorkerProtocolOf(spec), 0u);
  spec.mutable_start()->set_what(v1::StartSpec::EVERYTHING);
  EXPECT_EQ(WorkerProtocolOf(spec), kWorkerProtocol) << "0.3.0 takes the checkpoint's settings";
}

}  // namespace
}  // namespace muster::service
