#include "tests/simulation/client.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

namespace muster::simulation {


void Client::Submit(const std::string& job, const JobSettings& settings, uint32_t max_restarts) {
  scene_.jobs[job] = settings;
  Ask ask{.job = job, .submits = true};
  ask.submission = {
      .job_id = job, .name = job, .request_id = absl::StrCat("submit-", job), .fingerprint = job};
  ask.submission.plan.world_size = settings.world_size;
  ask.submission.plan.total_steps = settings.total_steps;
  ask.submission.plan.max_restarts = max_restarts;
  ask.submission.plan.keep_checkpoints = 1 + scene_.timeline.Pick(3);
  submitted_.insert(job);
  Add(std::move(ask));
}

void Client::CommandSomething() {
  if (submitted_.empty()) return;
  const std::string job = *std::next(submitted_.begin(), scene_.timeline.Pick(submitted_.size()));
  constexpr v1::Operation::Kind kKinds[] = {v1::Operation::SET_LEARNING_RATE,
                                            v1::Operation::SET_LEARNING_RATE,
                                            v1::Operation::SKIP_DATA,
                                            v1::Operation::SAVE_CHECKPOINT,
                                            v1::Operation::PAUSE,
                                            v1::Operation::RESUME,
                                            v1::Operation::CANCEL};
  Ask ask{.job = job};
  commands::Command& command = ask.command.command;
  command.kind = kKinds[scene_.timeline.Pick(std::size(kKinds))];
  if (scene_.timeline.OneIn(60)) command.kind = v1::Operation::STOP;
  if (scene_.timeline.OneIn(4) && command.kind != v1::Operation::RESUME &&
      command.kind != v1::Operation::CANCEL) {
    command.at_step = scene_.timeline.Pick(scene_.jobs.at(job).total_steps + 3);
  }
  if (command.kind == v1::Operation::CANCEL) command.target = 1 + scene_.timeline.Pick(6);
  Add(std::move(ask));
}

void Client::Resume(const std::string& job) {
  Ask ask{.job = job};
  ask.command.command.kind = v1::Operation::RESUME;
  Add(std::move(ask));
}

void Client::Add(Ask ask) {
  const std::string request_id = absl::StrCat("request-", asks_.size());
  ask.command.job_id = ask.job;
  ask.command.request_id = ask.command.fingerprint = ask.command.command.contents = request_id;
  asks_.push_back(std::move(ask));
  Call(&asks_.back());
}

void Client::Call(Ask* ask) {
  if (ask->answered) return;
  const uint64_t attempt = ++ask->attempts;
  scene_.timeline.After(scene_.timeline.Between(0.001, 0.05), [this, ask] {
    const auto answer =
        std::make_shared<absl::StatusOr<uint64_t>>(absl::UnavailableError("not called"));
    scene_.coordinator.Call(
        [ask, answer](cluster::Cluster& cluster, absl::Time now) {
          if (ask->submits) {
            const auto id = cluster.Submit(ask->submission, now);
            *answer = id.ok() ? absl::StatusOr<uint64_t>(1) : id.status();
          } else if (ask->command.command.kind == v1::Operation::CANCEL) {
            *answer = cluster.Cancel(ask->command, now);
          } else {
            *answer = cluster.Command(ask->command, now);
          }
          return absl::OkStatus();
        },
        [this, ask, answer](const absl::Status&) {
          if (scene_.timeline.OneIn(5)) return;  // the answer is lost
          scene_.timeline.After(scene_.timeline.Between(0.001, 0.05),
                                [this, ask, answer, databases = scene_.databases] {
                                  if (databases == scene_.databases) Answer(ask, *answer);
                                });
        });
  });
  scene_.timeline.After(scene_.timeline.Between(1, 3), [this, ask, attempt] {
    if (ask->attempts == attempt) Call(ask);
  });
}

void Client::Answer(Ask* ask, const absl::StatusOr<uint64_t>& answer) {
  if (absl::IsUnavailable(answer.status())) return;
  ask->answered = true;
  if (answer.ok()) ask->numbers.insert(*answer);
  scene_.timeline.Tell(ask->submits ? "submit" : commands::Name(ask->command.command.kind), " ",
                       ask->job, " (", ask->command.request_id, "): ",
                       answer.ok()
                           ? absl::StrCat(*answer)
                           : answer.status().ToString(absl::StatusToStringMode::kWithNoExtraData));
}

bool Client::Answered() const {
  return std::all_of(asks_.begin(), asks_.end(), [](const Ask& ask) { return ask.answered; });
}

void Client::Check(const cluster::Cluster& cluster) {
  for (const std::string& id : submitted_) {
    const jobs::Job* job = cluster.Find(id);
    std::map<std::string, int> by_request;
    for (const commands::Command& command :
         job == nullptr ? std::vector<commands::Command>() : job->commands.commands()) {
      // An older database has lost some jobs, and others continue under a new number.
      const bool renumbered =
          command.outcome.has_value() && command.outcome->reason == "OPERATION_RENUMBERED";
      if (command.kind == v1::Operation::KIND_UNSPECIFIED || renumbered) continue;
      if (++by_request[command.contents] > 1) {
        scene_.timeline.Wrong(command.contents, " made several commands");
      }
    }
  }
  for (const Ask& ask : asks_) {
    if (ask.numbers.empty()) continue;
    const jobs::Job* job = cluster.Find(ask.job);
    if (job == nullptr) {
      scene_.timeline.Wrong("job ", ask.job, " is lost, which was acknowledged");
      continue;
    }
    if (ask.submits) continue;
    if (ask.numbers.size() > 1) {
      scene_.timeline.Wrong(ask.command.request_id, " had several answers");
    }
    const commands::Command* command = job->commands.Find(*ask.numbers.begin());
    const bool there = command != nullptr && (ask.command.command.kind == v1::Operation::CANCEL ||
                                              command->contents == ask.command.request_id);
    // A second stop gets the operation of the first one.
    const bool stop = command != nullptr && ask.command.command.kind == v1::Operation::STOP;
    if (!there && !stop) {
      scene_.timeline.Wrong("the command of ", ask.command.request_id, " is lost");
    }
  }
}

bool Client::AllAreIn(const store::Image& image) const {
  return std::all_of(submitted_.begin(), submitted_.end(), [&](const std::string& id) {
    return std::any_of(image.jobs.begin(), image.jobs.end(),
                       [&](const jobs::Job& one) { return one.id == id; });
  });
}

void Client::Forget(const store::Image& image) {
  for (Ask& ask : asks_) {
    const auto job = std::find_if(image.jobs.begin(), image.jobs.end(),
                                  [&](const jobs::Job& one) { return one.id == ask.job; });
    const bool known = job != image.jobs.end() &&
                       (ask.submits || (!ask.numbers.empty() &&
                                        job->commands.Find(*ask.numbers.begin()) != nullptr));
    if (known) continue;
    ask.numbers.clear();
    if (ask.submits && ask.answered) {
      ask.answered = false;
      Call(&ask);
    }
  }
}

}  // namespace muster::simulation
