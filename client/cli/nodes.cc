#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "client/cli/command.h"
#include "client/cli/commands.h"
#include "client/cli/terminal/job_text.h"
#include "client/cli/terminal/table.h"
#include "common/rpc/proto_time.h"

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

ExitCode Nodes(Console* console, const CommonOptions& options) {
  const auto client = Connect(options);
  if (!client.ok()) return Fail(console, client.status());
  const auto nodes = (*client)->Read(&v1::ClusterService::Stub::ListNodes, {});
  if (!nodes.ok()) return Fail(console, nodes.status());
  if (nodes->has_store_trouble()) {
    console->err << "warning: the coordinator's store could last be written "
                 << Ago(nodes->store_trouble().since(), absl::Now()) << ": "
                 << nodes->store_trouble().message()
                 << "; running jobs continue, changes are refused\n";
  }
  if (IsDocument(options.output)) {
    console->out << Document(*nodes, options.output);
  } else if (nodes->nodes().empty()) {
    console->err << "no nodes: no muster-agent is attached\n";
  } else {
    console->out << NodeTable(*nodes, absl::Now());
  }
  return kDone;
}

struct ForgetOptions : CommonOptions {
  std::string node;
};

ExitCode Forget(Console* console, const ForgetOptions& options) {
  const auto client = Connect(options);
  if (!client.ok()) return Fail(console, client.status());
  v1::ForgetNodeRequest request;
  request.set_node(options.node);
  const auto forgotten = (*client)->Steer(
      &v1::ClusterService::Stub::ForgetNode, request,
      {.retry = {.retry_for = options.retry_for}, .requested_by = Requester(console)});
  if (!forgotten.ok()) return Fail(console, forgotten.status());
  console->out << "node " << options.node << " is forgotten\n";
  return kDone;
}

}  // namespace

void AddNodes(CLI::App* app, Console* console, ExitCode* code) {
  auto options = std::make_shared<CommonOptions>();
  CLI::App* command = app->add_subcommand(
      "nodes", "Show the nodes that offer slots, what is free there and what runs there");
  AddCommonOptions(command, console, options.get());
  command->callback([=] {
    if (command->get_subcommands().empty()) *code = Nodes(console, *options);
  });

  auto forget_options = std::make_shared<ForgetOptions>();
  CLI::App* forget =
      command->add_subcommand("forget",
                              "Treat all processes on a node that is cut off as ended, and replace "
                              "its ranks now. First make sure that they have ended");
  forget->add_option("NODE", forget_options->node, "The node's name, as in `muster nodes`")
      ->required();
  AddCommonOptions(forget, console, forget_options.get());
  AddRetryOption(forget, forget_options.get());
  forget->callback([=] { *code = Forget(console, *forget_options); });
}

}  // namespace muster::cli
