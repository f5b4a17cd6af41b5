// muster-rank: one rank of a job in a process of its own, with a worker's own code and without
// coordinator and agents. Used by tests of tests/gpu and measurements of bench/gpu, also on
// machines where all ranks share a GPU.
//
//   muster-rank JOB_FILE --rank R --meet PORT_FILE [options]
//
// Rank 0 writes the port at which the ranks meet to PORT_FILE, and the other ranks read it there.
// With `device: cuda` the model is on the first GPU. A job of one rank uses NCCL; several ranks
// exchange tensors over Gloo through pinned memory, because they may share a GPU.
//
// Each event is a line of JSON on stdout: {"step": 3, "loss": 2.5, "seconds": 0.1, ...}, then
// {"memory": {...}} and {"end": "done"} or {"end": "failed", "error": "..."}. The exit code is 0 or
// 1.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/jobfile/jobfile.h"
#include "common/log/log.h"
#include "common/status/status.h"
#include "tests/gpu/rank_device.h"
#include "worker/comm/gloo/gloo_communicator.h"
#include "worker/comm/gloo/rendezvous.h"
#include "worker/comm/staged/staged_communicator.h"
#include "worker/control/job_from_spec.h"
#include "worker/control/model_communicator.h"
#include "worker/memory/counting_allocator.h"
#include "worker/memory/device_memory.h"
#include "worker/train/session/session.h"

namespace muster {
namespace {

using Json = nlohmann::json;

constexpr auto kMeet = std::chrono::minutes(2);

struct Options {
  std::string job_file;
  int rank = 0;
  std::string meet;
  std::vector<std::string> checkpoints;
  std::vector<std::string> freeze;  // "STEPS_DONE:PATTERN"
  int no_waiting_from = 0;          // 0: never
  int no_waiting_to = 0;
  int trace_from = 0;  // 0: never
  int trace_to = 0;
  std::string trace_file;
  int timeout_seconds = 120;
  bool staged = false;
};

void Print(const Json& line) { std::cout << line.dump() << std::endl; }

// The source of the commands from the options, and the sink of events.
class InMemoryCoordinator : public train::CommandSource, public train::EventSink {
 public:
  explicit InMemoryCoordinator(const Options& options) : options_(options) {
    for (const std::string& freeze : options.freeze) {
      const size_t colon = freeze.find(':');
      train::Command& command = commands_.emplace_back();
      command.set_number(commands_.size());
      command.set_at_step(std::stoull(freeze.substr(0, colon)));
      command.mutable_set_trainability()->add_rules()->set_freeze(freeze.substr(colon + 1));
    }
  }

  int64_t Newest() const override { return static_cast<int64_t>(commands_.size()); }
  train::Command Get(int64_t number) const override { return commands_[number - 1]; }
  void Report(const train::Event& event) override {
    if (const auto* step = std::get_if<v1::StepMetrics>(&event)) {
      if (step->has_validation()) {
        return Print({{"validated", step->step()}, {"loss", step->validation().loss()}});
      }
      Json line = {{"step", step->step()},
                   {"loss", step->loss()},
                   {"skipped", step->skipped()},
                   {"seconds", step->duration().seconds() + 1e-9 * step->duration().nanos()}};
      if (step->has_grad_norm()) line["grad_norm"] = step->grad_norm();
      if (step->has_loss_scale()) line["loss_scale"] = step->loss_scale();
      if (step->has_model_flops_utilization()) line["mfu"] = step->model_flops_utilization();
      Print(line);
    } else if (const auto* written = std::get_if<train::CheckpointWritten>(&event)) {
      Print({{"checkpoint", written->path}});
    } else if (const auto* finished = std::get_if<train::CommandFinished>(&event)) {
      Print({{"command", finished->number}, {"status", Message(finished->status)}});
    }
  }
  void Progress(int64_t step, const char*, const char*) override {
    if (step == 0) return;
    if (step == options_.no_waiting_from) ForbidWaiting(true);
    if (step == options_.no_waiting_to) ForbidWaiting(false);
    if (step == options_.trace_from) BeginTrace();
    if (step == options_.trace_to) EndTrace(options_.trace_file);
  }

 private:
  const Options options_;
  std::vector<train::Command> commands_;
};

absl::StatusOr<std::unique_ptr<comm::RendezvousStore>> Meet(const Options& options) {
  if (options.rank == 0) {
    ASSIGN_OR_RETURN(auto store, comm::HostStore());
    std::ofstream(options.meet + ".new") << store->port();
    std::filesystem::rename(options.meet + ".new", options.meet);
    return store;
  }
  for (const auto end = std::chrono::steady_clock::now() + kMeet;
       std::chrono::steady_clock::now() < end;
       std::this_thread::sleep_for(std::chrono::milliseconds(20))) {
    int port = 0;
    if (std::ifstream(options.meet) >> port) {
      return comm::ConnectStore("127.0.0.1", static_cast<uint16_t>(port), kMeet);
    }
  }
  return absl::DeadlineExceededError(absl::StrCat("rank 0 has not written ", options.meet));
}

absl::Status Run(const Options& options) {
  ASSIGN_OR_RETURN(const auto file, jobfile::LoadJobFile(options.job_file));
  ASSIGN_OR_RETURN(const train::Job job, control::JobFromSpec(file.spec));
  const bool cuda = file.spec.device() == v1::JobSpec::CUDA;
  const int world_size = static_cast<int>(file.spec.world_size());
  ASSIGN_OR_RETURN(const auto store, Meet(options));
  comm::GlooOptions gloo{.rank = options.rank,
                         .world_size = world_size,
                         .name = "control",
                         .connect_timeout = kMeet,
                         .timeout = std::chrono::seconds(options.timeout_seconds)};
  ASSIGN_OR_RETURN(const auto control, comm::CreateGlooCommunicator(gloo, *store));
  gloo.name = "files";
  ASSIGN_OR_RETURN(const auto files, comm::CreateGlooCommunicator(gloo, *store));
  const auto connect =
      [&](const char* name) -> absl::StatusOr<std::unique_ptr<comm::Communicator>> {
    gloo.name = name;
    if (!cuda || (world_size == 1 && !options.staged)) {
      return control::ConnectForModel(file.spec, gloo, *store);
    }
    ASSIGN_OR_RETURN(auto host, comm::CreateGlooCommunicator(gloo, *store));
    return comm::Staged(std::move(host), {.device = c10::Device(c10::kCUDA, 0)});
  };
  ASSIGN_OR_RETURN(const auto gradients, connect("gradients"));
  ASSIGN_OR_RETURN(const auto parameters, connect("parameters"));
  if (cuda) memory::CountDeviceMemory();
  InMemoryCoordinator coordinator(options);
  train::SessionParts parts{control.get(),
                            gradients.get(),
                            parameters.get(),
                            files.get(),
                            &coordinator,
                            &coordinator,
                            {.recorded = options.checkpoints}};
  const train::Identity identity{"job", "instance", /*generation=*/1, options.rank,
                                 absl::StrCat("process-", options.rank)};
  ASSIGN_OR_RETURN(const auto session, train::Session::Create(identity, job, parts));
  RETURN_IF_ERROR(session->Run().status());
  const memory::Usage usage = cuda ? memory::DeviceMemoryInUse().in_use : memory::MemoryInUse();
  Json of_purposes;
  for (const auto& [name, purpose] : {std::pair("parameters", memory::Purpose::kParameters),
                                      {"gradients", memory::Purpose::kGradients},
                                      {"moments", memory::Purpose::kMoments},
                                      {"buckets", memory::Purpose::kBuckets},
                                      {"activations", memory::Purpose::kActivations},
                                      {"gathered", memory::Purpose::kGathered}}) {
    of_purposes[name] = {usage.of(purpose).bytes, usage.of(purpose).peak_bytes};
  }
  of_purposes["total"] = {usage.total.bytes, usage.total.peak_bytes};
  Print({{"memory", of_purposes}});
  return absl::OkStatus();
}

}  // namespace
}  // namespace muster

int main(int argc, char** argv) {
  muster::memory::InstallCountingAllocator();
  muster::InitLog("muster-rank");  // stdout is for events
  muster::Options options;
  CLI::App app("One rank of a job in a process of its own, for tests and measurements");
  app.add_option("JOB_FILE", options.job_file)->required();
  app.add_option("--rank", options.rank)->required();
  app.add_option("--meet", options.meet, "file with the port of rank 0")->required();
  app.add_option("--from", options.checkpoints, "checkpoint to start from, in the job's folder");
  app.add_option("--freeze", options.freeze, "STEPS_DONE:PATTERN, a command to freeze");
  app.add_option("--no-waiting-from", options.no_waiting_from,
                 "steps done, after which LibTorch throws where the host waits for the GPU");
  app.add_option("--no-waiting-to", options.no_waiting_to, "steps done, after which it does not");
  app.add_option("--trace-from", options.trace_from,
                 "steps done, after which the kernels of the GPU are recorded");
  app.add_option("--trace-to", options.trace_to, "steps done, after which they are not");
  app.add_option("--trace", options.trace_file, "file for them");
  app.add_option("--timeout", options.timeout_seconds, "of collectives, in seconds");
  app.add_flag("--staged", options.staged, "Gloo and pinned memory, with one rank, too");
  CLI11_PARSE(app, argc, argv);
  const absl::Status status = muster::Run(options);
  if (status.ok()) {
    muster::Print({{"end", "done"}});
  } else {
    muster::Print({{"end", "failed"}, {"error", muster::Message(status)}});
  }
  std::cout.flush();
  // An exit without destructors, because other ranks may be waiting for the objects.
  _exit(status.ok() ? 0 : 1);
}
