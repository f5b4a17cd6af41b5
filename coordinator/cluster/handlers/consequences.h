// What follows from a change of a job: processes end, nodes are judged, watchers are told, and the
// jobs that fit now start.
#ifndef MUSTER_COORDINATOR_CLUSTER_HANDLERS_CONSEQUENCES_H_
#define MUSTER_COORDINATOR_CLUSTER_HANDLERS_CONSEQUENCES_H_

#include "coordinator/cluster/handlers/turn.h"
#include "coordinator/cluster/options.h"
#include "coordinator/jobs/job.h"
#include "coordinator/jobs/life.h"
#include "coordinator/membership/watchdog.h"

namespace muster::cluster {

// A change that watchers and webhooks see. Handlers call this, not Jobs::Changed.
void Changed(Turn& turn, jobs::Job* job);
// The job made progress: its nodes are in order.
void NodesWork(Turn& turn, const jobs::Job& job);
// Carries out what follows from a change of the job's state: tells the processes of `ended` to end,
// forgets those that are gone, judges the nodes, ends the commands of a job that has ended, logs
// the state, and starts the jobs that fit now.
void ApplyJobChange(Turn& turn, jobs::Job* job, const jobs::Ended& ended);
// The same after a change of the job's lists.
void ApplyListsChange(Turn& turn, jobs::Job* job, const jobs::Ended& ended);
// Starts the jobs that fit, in the order of the line, and records why the others wait.
void Schedule(Turn& turn);
// The watchdog's settings for this job: its own, or the defaults.
membership::ProgressLimits ProgressLimitsOf(const Options& options, const jobs::Job& job);

}  // namespace muster::cluster

#endif  // MUSTER_COORDINATOR_CLUSTER_HANDLERS_CONSEQUENCES_H_
