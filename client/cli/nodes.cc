// The commands `nodes`, and drain, cordon, uncordon, which change what may run on a node.
#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/cli/command.h"
#include "client/cli/commands.h"
#include "client/cli/terminal/job_text.h"
#include "client/cli/terminal/output.h"
#include "common/rpc/proto_time.h"
#include "common/status/status.h"
#include "common/steady/now.h"

namespace muster::cli {
namespace {

// "a (2 ranks), b (1 rank)".
std::string JobsOn(const v1::Node& node) {
  return absl::StrJoin(node.jobs(), ", ", [](std::string* text, const v1::NodeJob& job) {
    absl::StrAppend(text, job.job_id(), " (", job.ranks_size(),
                    job.ranks_size() == 1 ? " rank)" : " ranks)");
  });
}

std::string OrDash(const std::string& text) { return text.empty() ? "-" : text; }

// "NVIDIA H100 80GB HBM3 (80.0 GiB)", each kind of GPU once.
std::string GpuNames(const v1::Node& node) {
  std::vector<std::string> names;
  for (const v1::NodeGpu& gpu : node.gpus()) {
    std::string name = gpu.name();
    if (gpu.memory_bytes() > 0) {
      absl::StrAppend(&name, " (", HumanBytes(gpu.memory_bytes()), ")");
    }
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  return absl::StrJoin(names, ", ");
}

// "until 10:42:10 UTC: 3 failures within 10m; ...".
std::string WhyOf(const v1::Node& node) {
  if (!node.has_left_out_until()) return node.state_reason();
  const absl::Time until = FromProto(node.left_out_until());
  return absl::StrCat(absl::FormatTime("until %H:%M:%S UTC: ", until, absl::UTCTimeZone()),
                      node.state_reason());
}

std::string NodeTable(const v1::ListNodesResponse& response, absl::Time now) {
  const bool reasons = std::any_of(response.nodes().begin(), response.nodes().end(),
                                   [](const v1::Node& node) { return !WhyOf(node).empty(); });
  const bool gpus = std::any_of(response.nodes().begin(), response.nodes().end(),
                                [](const v1::Node& node) { return !node.gpus().empty(); });
  std::vector<std::string> columns = {"NODE", "STATE", "SLOTS", "FREE"};
  if (gpus) columns.insert(columns.end(), {"GPUS", "FREE GPUS", "GPU"});
  columns.insert(columns.end(), {"SEEN", "VERSION", "JOBS"});
  if (reasons) columns.push_back("WHY");
  Table table(columns);
  for (const v1::Node& node : response.nodes()) {
    std::vector<std::string> row = {node.name(), v1::Node::State_Name(node.state()),
                                    absl::StrCat(node.slots_total()),
                                    absl::StrCat(node.slots_free())};
    if (gpus) {
      const auto free = std::count_if(node.gpus().begin(), node.gpus().end(),
                                      [](const v1::NodeGpu& gpu) { return gpu.free(); });
      row.push_back(absl::StrCat(node.gpus_size()));
      row.push_back(absl::StrCat(free));
      row.push_back(OrDash(GpuNames(node)));
    }
    row.push_back(Ago(node.last_seen(), now));
    row.push_back(OrDash(node.version()));
    row.push_back(OrDash(JobsOn(node)));
    if (reasons) row.push_back(OrDash(WhyOf(node)));
    table.Add(row);
  }
  return table.Text();
}

absl::StatusOr<ExitCode> Nodes(Console* console, client::MusterClient& client,
                               const CommonOptions& options) {
  ASSIGN_OR_RETURN(const v1::ListNodesResponse nodes,
                   client.Read(&v1::ClusterService::Stub::ListNodes, {}));
  if (nodes.has_store_trouble()) {
    console->err << "warning: the coordinator's store could last be written "
                 << Ago(nodes.store_trouble().since(), absl::Now()) << ": "
                 << nodes.store_trouble().message()
                 << "; running jobs continue, changes are refused\n";
  }
  if (IsDocument(options.output)) {
    console->out << Document(nodes, options.output);
  } else if (nodes.nodes().empty()) {
    console->err << "no nodes: no muster-agent is attached\n";
  } else {
    console->out << NodeTable(nodes, absl::Now());
  }
  return kDone;
}

struct NodeOptions : CommonOptions {
  std::string node;
  bool wait = false;
  absl::Duration timeout = absl::InfiniteDuration();
  // Option of drain.
  std::optional<absl::Duration> deadline;
};

absl::StatusOr<ExitCode> Forget(Console* console, client::MusterClient& client,
                                const NodeOptions& options) {
  v1::ForgetNodeRequest request;
  request.set_node(options.node);
  RETURN_IF_ERROR(client
                      .Steer(&v1::ClusterService::Stub::ForgetNode, request,
                             {.retry = {.retry_for = options.retry_for},
                              .requested_by = Requester(console)})
                      .status());
  console->out << "node " << options.node << " is forgotten\n";
  return kDone;
}

// The pause between two requests for the state of a node that is drained.
constexpr std::chrono::milliseconds kLook(200);

// Returns the present state of the node `last`. A node that is not listed any more runs nothing.
absl::StatusOr<v1::Node> Look(client::MusterClient& client, v1::Node last) {
  ASSIGN_OR_RETURN(const v1::ListNodesResponse nodes,
                   client.Read(&v1::ClusterService::Stub::ListNodes, {}));
  for (const v1::Node& node : nodes.nodes()) {
    if (node.name() == last.name()) return node;
  }
  last.clear_jobs();
  return last;
}

// Waits until no process is left on the node. DEADLINE_EXCEEDED: not in time. UNAVAILABLE: the
// coordinator could not be reached for too long.
absl::StatusOr<v1::Node> AwaitEmpty(client::MusterClient& client, v1::Node node,
                                    const NodeOptions& options) {
  const absl::Time deadline = SteadyNow() + options.timeout;
  absl::Time broken_since = absl::InfiniteFuture();
  while (node.jobs_size() > 0) {
    if (SteadyNow() >= deadline) {
      return absl::DeadlineExceededError(absl::StrCat("node ", node.name(), " is not empty after ",
                                                      absl::FormatDuration(options.timeout)));
    }
    std::this_thread::sleep_for(kLook);
    auto next = Look(client, node);
    if (next.ok()) {
      node = *std::move(next);
      broken_since = absl::InfiniteFuture();
      continue;
    }
    broken_since = std::min(broken_since, SteadyNow());
    const bool again =
        absl::IsUnavailable(next.status()) && SteadyNow() - broken_since < options.retry_for;
    if (!again) return next.status();
  }
  return node;
}

// Warns of jobs that must leave the node and have no checkpoint from which to continue.
void WarnOfLostWork(Console* console, const v1::Node& node) {
  for (const v1::NodeJob& job : node.jobs()) {
    if (!job.without_checkpoints()) continue;
    console->err << "job " << job.job_id()
                 << " writes no checkpoints: it starts again from step 0 on another node\n";
  }
}

template <typename Request>
using NodeRpc = client::Connection::Unary<v1::ClusterService::Stub, Request, v1::Node>;
// Only a drain has a deadline.
template <typename Request>
concept HasDeadline = requires(Request request) { request.mutable_deadline(); };

template <typename Request>
ExitCode ChangeNode(Console* console, const NodeOptions& options, NodeRpc<Request> rpc) {
  const auto client = Connect(options);
  if (!client.ok()) return Fail(console, client.status());
  Request request;
  request.set_node(options.node);
  if constexpr (HasDeadline<Request>) {
    if (options.deadline.has_value()) *request.mutable_deadline() = ToProto(*options.deadline);
  }
  auto node = (*client)->Steer(
      rpc, request,
      {.retry = {.retry_for = options.retry_for}, .requested_by = Requester(console)});
  // Printed before the wait, so that the user can still uncordon the node.
  if (node.ok() && node->state() == v1::Node::DRAINING) WarnOfLostWork(console, *node);
  if (node.ok() && options.wait) node = AwaitEmpty(**client, *std::move(node), options);
  if (absl::IsDeadlineExceeded(node.status())) {
    return FailWith(console, std::string(node.status().message()), kTimedOut);
  }
  if (!node.ok()) return Fail(console, node.status());
  if (IsDocument(options.output)) {
    console->out << Document(*node, options.output);
  } else {
    console->out << "node " << node->name() << " " << v1::Node::State_Name(node->state());
    if (node->jobs_size() > 0) {
      console->out << ", " << node->jobs_size()
                   << (node->jobs_size() == 1 ? " job runs there" : " jobs run there");
    }
    console->out << "\n";
  }
  return kDone;
}

template <typename Request>
void Add(CLI::App* app, Console* console, ExitCode* code, const std::string& name,
         const std::string& help, NodeRpc<Request> rpc) {
  auto options = std::make_shared<NodeOptions>();
  CLI::App* command = app->add_subcommand(name, help);
  command->add_option("NODE", options->node, "The node's name, as in `muster nodes`")->required();
  if constexpr (HasDeadline<Request>) {
    AddDurationOption(
        command, "--deadline", &options->deadline,
        "How long the jobs there may take to save and to end, longer while they make "
        "progress; more than 0s, at most 168h (default: as the node's agent was started "
        "with)");
    command->add_flag("--wait", options->wait, "Return when no process is left there");
    AddDurationOption(command, "--timeout", &options->timeout,
                      "With --wait: wait at most this long (exit code 101)");
  }
  AddCommonOptions(command, console, options.get());
  AddRetryOption(command, options.get());
  command->callback([=] { *code = ChangeNode<Request>(console, *options, rpc); });
}

}  // namespace

void AddNodes(CLI::App* app, Console* console, ExitCode* code) {
  auto options = std::make_shared<CommonOptions>();
  CLI::App* command = app->add_subcommand(
      "nodes", "Show the nodes that offer slots, what is free there and what runs there");
  AddCommonOptions(command, console, options.get());
  command->callback([=] {
    if (command->get_subcommands().empty()) *code = Call(console, *options, Nodes);
  });

  auto forget_options = std::make_shared<NodeOptions>();
  CLI::App* forget =
      command->add_subcommand("forget",
                              "Treat all processes on a node that is cut off as ended, and replace "
                              "its ranks now. First make sure that they have ended");
  forget->add_option("NODE", forget_options->node, "The node's name, as in `muster nodes`")
      ->required();
  AddCommonOptions(forget, console, forget_options.get());
  AddRetryOption(forget, forget_options.get());
  forget->callback([=] { *code = Call(console, *forget_options, Forget); });
}

void AddDrain(CLI::App* app, Console* console, ExitCode* code) {
  Add<v1::DrainNodeRequest>(
      app, console, code, "drain",
      "Empty a node: its jobs save a checkpoint at their next step and continue on other nodes",
      &v1::ClusterService::Stub::DrainNode);
}

void AddCordon(CLI::App* app, Console* console, ExitCode* code) {
  Add<v1::CordonNodeRequest>(app, console, code, "cordon",
                             "Place nothing more on a node; its running jobs continue",
                             &v1::ClusterService::Stub::CordonNode);
}

void AddUncordon(CLI::App* app, Console* console, ExitCode* code) {
  Add<v1::UncordonNodeRequest>(
      app, console, code, "uncordon",
      "End a drain or a cordon, and the time in which a node is left out after failures",
      &v1::ClusterService::Stub::UncordonNode);
}

}  // namespace muster::cli
