#include "coordinator/service/worker_protocol.h"

#include "gtest/gtest.h"

namespace muster::service {
namespace {

TEST(WorkerProtocol, AJobNeedsWorkersThatKnowAllOfItsSettings) {
  v1::JobSpec spec;
  spec.mutable_model()->set_weights("/w");
  spec.mutable_optimizer()->mutable_sgd();
  EXPECT_EQ(WorkerProtocolOf(spec), 0u) << "every worker knows a path of weights";

  v1::JobSpec started = spec, state = spec, part = spec;
  started.mutable_start()->set_checkpoint("/c");
  EXPECT_EQ(WorkerProtocolOf(started), 4u);
  state.mutable_optimizer()->set_state("/s");
  EXPECT_EQ(WorkerProtocolOf(state), 4u);
  part.mutable_model()->mutable_weights_from()->set_file("/w");
  EXPECT_EQ(WorkerProtocolOf(part), 4u);
}

}  // namespace
}  // namespace muster::service
