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
  started.mutable_start()->set_what(v1::StartSpec::EVERYTHING);
  EXPECT_EQ(WorkerProtocolOf(started), 8u) << "an older worker takes the checkpoint's rate";
  state.mutable_optimizer()->set_state("/s");
  EXPECT_EQ(WorkerProtocolOf(state), 4u);
  part.mutable_model()->mutable_weights_from()->set_file("/w");
  EXPECT_EQ(WorkerProtocolOf(part), 4u);
}

TEST(WorkerProtocolOf, GroupsWithMoreThanWeightDecayAndScaleNeedAWorkerThatKnowsThem) {
  v1::JobSpec spec;
  v1::ParameterGroup* group = spec.mutable_optimizer()->add_groups();
  group->set_weight_decay(0);
  group->set_lr_scale(0.5);
  EXPECT_EQ(WorkerProtocolOf(spec), 0u);

  v1::JobSpec lr = spec, betas = spec, eps = spec, momentum = spec, another = spec, kind = spec;
  lr.mutable_optimizer()->mutable_groups(0)->set_lr(0.1);
  EXPECT_EQ(WorkerProtocolOf(lr), 4u);
  betas.mutable_optimizer()->mutable_groups(0)->add_betas(0.9);
  EXPECT_EQ(WorkerProtocolOf(betas), 4u);
  eps.mutable_optimizer()->mutable_groups(0)->set_eps(1e-6);
  EXPECT_EQ(WorkerProtocolOf(eps), 4u);
  momentum.mutable_optimizer()->mutable_groups(0)->set_momentum(0.9);
  EXPECT_EQ(WorkerProtocolOf(momentum), 4u);
  another.mutable_optimizer()->mutable_groups(0)->mutable_optimizer()->mutable_sgd();
  EXPECT_EQ(WorkerProtocolOf(another), 4u);
  kind.mutable_optimizer()->mutable_adadelta();
  EXPECT_EQ(WorkerProtocolOf(kind), 4u);
}

TEST(WorkerProtocolOf, StagesAndAveragesThatOlderWorkersIgnoreNeedAWorkerThatKnowsThem) {
  v1::JobSpec spec;
  spec.mutable_export_()->set_from(v1::ExportSpec::LAST);
  spec.mutable_evaluation()->set_reshard(v1::EvaluationSpec::AUTO);
  v1::FitStage* fit = spec.add_stages()->mutable_fit();
  fit->set_steps(1);
  EXPECT_EQ(WorkerProtocolOf(spec), 0u);

  v1::JobSpec stopping = spec, best = spec, limit = spec, predict = spec, ema = spec, from = spec;
  stopping.mutable_stages(0)->mutable_fit()->mutable_early_stopping();
  EXPECT_EQ(WorkerProtocolOf(stopping), 6u);
  best.mutable_stages(0)->mutable_fit()->mutable_keep_best();
  EXPECT_EQ(WorkerProtocolOf(best), 6u);
  limit.mutable_stages(0)->mutable_fit()->set_limit_steps(1);
  EXPECT_EQ(WorkerProtocolOf(limit), 6u);
  predict.add_stages()->mutable_predict();
  EXPECT_EQ(WorkerProtocolOf(predict), 6u);
  ema.mutable_ema();
  EXPECT_EQ(WorkerProtocolOf(ema), 6u);
  from.mutable_export_()->set_from(v1::ExportSpec::EMA);
  EXPECT_EQ(WorkerProtocolOf(from), 6u);
}

TEST(WorkerProtocolOf, AnOrderThatOlderWorkersShuffleOtherwiseNeedsAWorkerThatKnowsIt) {
  v1::JobSpec spec;
  spec.mutable_batch()->set_order(v1::BatchSpec::SHUFFLED);
  EXPECT_EQ(WorkerProtocolOf(spec), 0u);
  spec.mutable_batch()->set_order(v1::BatchSpec::SHUFFLED_V2);
  EXPECT_EQ(WorkerProtocolOf(spec), 6u);
}

TEST(WorkerProtocolOf, EventFilesNeedAWorkerThatWritesThem) {
  v1::JobSpec spec;
  spec.set_world_size(1);
  EXPECT_EQ(WorkerProtocolOf(spec), 0u);
  spec.mutable_metrics()->set_tensorboard("/events");
  EXPECT_EQ(WorkerProtocolOf(spec), 7u);
}

}  // namespace
}  // namespace muster::service
