#include "coordinator/web/watched.h"

#include <prometheus/text_serializer.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status.h"
#include "common/version/version.h"
#include "coordinator/service/observation.h"
#include "coordinator/web/exposition.h"
#include "coordinator/web/metrics.h"

namespace muster::web {
namespace {

// The time for which /metrics gives the same text or the same error. It limits the time that the
// coordinator and the listener's thread spend on frequent requests.
constexpr absl::Duration kFreshFor = absl::Seconds(1);
constexpr char kPrometheusText[] = "text/plain; version=0.0.4; charset=utf-8";

Page Told(const absl::Status& status) {
  return status.ok() ? PlainPage(200, "ok\n") : PlainPage(503, absl::StrCat(Message(status), "\n"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Watched>> Watched::Start(const WatchedOptions& options) {
  ASSIGN_OR_RETURN(const Address address, ParseAddress(options.address));
  const bool inside = address.local() || IsLoopback(address.host);
  if (!inside && !options.insecure) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--http ", options.address,
        ": other hosts reach this address, and whoever reaches it could read the names, states "
        "and measurements of all jobs and nodes; listen on 127.0.0.1 or on unix:/PATH, or give "
        "--http-insecure on a network that is closed to others"));
  }
  std::unique_ptr<Watched> self(new Watched(options));
  auto listener =
      Listener::Start({.address = address,
                       .hosts = inside && !address.local() ? Hosts::kLocal : Hosts::kAny,
                       .respond = [raw = self.get()](const std::string& first_line) {
                         return raw->site_.Respond(first_line);
                       }});
  if (!listener.ok()) {
    return absl::Status(listener.status().code(),
                        absl::StrCat("--http: ", Message(listener.status()),
                                     absl::IsUnavailable(listener.status())
                                         ? "; choose another address, or port 0 for a free port"
                                         : ""));
  }
  self->listener_ = *std::move(listener);
  return self;
}

Watched::Watched(const WatchedOptions& options) : options_(options) {
  site_.Add("/metrics", [this] { return Metrics(); });
  site_.Add("/healthz", [this] { return Told(Healthy()); });
  site_.Add("/readyz", [this] { return Told(Ready()); });
}

absl::Status Watched::Healthy() const {
  const service::Coordinator* coordinator = coordinator_;
  if (coordinator == nullptr) return absl::OkStatus();
  const absl::Duration still = options_.clock() - coordinator->health().woke();
  if (still <= options_.patience) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("the coordinator's thread has done nothing for ",
                   absl::FormatDuration(absl::Floor(still, absl::Seconds(1))),
                   ": musterd hangs, or its machine has stood still"));
}

absl::Status Watched::Ready() const {
  if (stopping_) return absl::UnavailableError("musterd is stopping");
  const service::Coordinator* coordinator = coordinator_;
  if (coordinator == nullptr) return absl::UnavailableError("musterd is starting");
  RETURN_IF_ERROR(coordinator->health().ready());
  return Healthy();
}

Page Watched::Metrics() {
  if (options_.clock() < metrics_made_ + kFreshFor) return metrics_;
  service::Coordinator* coordinator = coordinator_;
  if (coordinator == nullptr) return Told(absl::UnavailableError("musterd is starting"));
  const auto seen = coordinator->Observe(options_.observe_timeout);
  metrics_ = seen.ok() ? Page{.content_type = kPrometheusText,
                              .text = std::make_shared<const std::string>(MakeMetrics(*seen))}
                       : Told(seen.status());
  metrics_made_ = options_.clock();
  return metrics_;
}

std::string Watched::MakeMetrics(const service::Observation& seen) const {
  Exposition out;
  out.Gauge("muster_build_info", "Always 1: the version of musterd.")
      .Set({{"version", Version()}}, 1);
  AddClusterMetrics(seen, &out);
  AddJobMetrics(seen.jobs, &out);
  AddRankMetrics(seen.jobs, &out);
  AddStoreMetrics(options_.state_directory, seen.store_writable, &out);
  if (options_.latencies != nullptr) options_.latencies->AddTo(&out);
  AddProcessMetrics(&out);
  return prometheus::TextSerializer().Serialize(std::move(out).Take());
}

}  // namespace muster::web
