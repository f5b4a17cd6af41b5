#include "common/version/protocol.h"
#include "coordinator/service/engine.h"
#include "gtest/gtest.h"

namespace muster::service {
namespace {

TEST(WorkerProtocol, AJobNeedsWorkersThatKnowAllOfItsSettings) {
  v1::JobSpec spec;
  spec.mutable_start()->set_checkpoint("/c");
  jobs::Plan plan;
  SetUnstored(spec, &plan);
  EXPECT_EQ(plan.worker_protocol, 0u);
  spec.mutable_start()->set_what(v1::StartSpec::EVERYTHING);
  SetUnstored(spec, &plan);
  EXPECT_EQ(plan.worker_protocol, kWorkerProtocol) << "0.3.0 takes the checkpoint's settings";
}

}  // namespace
}  // namespace muster::service
