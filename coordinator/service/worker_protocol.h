// Which workers know all settings of a job.
#ifndef MUSTER_COORDINATOR_SERVICE_WORKER_PROTOCOL_H_
#define MUSTER_COORDINATOR_SERVICE_WORKER_PROTOCOL_H_

#include <algorithm>
#include <cstdint>

#include "coordinator/cluster/event.h"
#include "proto/muster/v1/job_spec.pb.h"

namespace muster::service {

// The oldest worker protocol that knows them; 0: any.
inline uint32_t WorkerProtocolOf(const v1::JobSpec& spec) {
  if (spec.start().what() == v1::StartSpec::EVERYTHING) return cluster::kWorkerProtocolOfSettings;
  if (spec.has_metrics()) return cluster::kWorkerProtocolOfEventFiles;
  const bool begins_with_state =
      spec.has_start() || !spec.optimizer().state().empty() || spec.model().has_weights_from();
  const auto& groups = spec.optimizer().groups();
  const bool groups_have_more =
      std::any_of(groups.begin(), groups.end(), [](const v1::ParameterGroup& group) {
        return group.has_lr() || group.betas_size() > 0 || group.has_eps() ||
               group.has_momentum() || group.has_optimizer();
      });
  const auto& stages = spec.stages();
  const bool stages_are_newer =
      std::any_of(stages.begin(), stages.end(), [](const v1::StageSpec& stage) {
        const v1::FitStage& fit = stage.fit();
        return stage.has_test() || stage.has_predict() || fit.has_epochs() ||
               fit.has_early_stopping() || fit.has_keep_best() || fit.limit_steps() > 0;
      });
  const bool weights_are_newer = spec.has_ema() || spec.export_().from() > v1::ExportSpec::LAST;
  const bool order_is_newer = spec.batch().order() == v1::BatchSpec::SHUFFLED_V2;
  if (stages_are_newer || order_is_newer || weights_are_newer) {
    return cluster::kWorkerProtocolOfStages;
  }
  const bool newer = begins_with_state || groups_have_more || spec.optimizer().has_adadelta();
  return newer ? cluster::kWorkerProtocolOfOptimizerState : 0;
}

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_WORKER_PROTOCOL_H_
