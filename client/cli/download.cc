#include "client/cli/download.h"

#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "client/api/cancellation.h"
#include "client/cli/terminal/escaped_stream.h"
#include "client/cli/terminal/interrupts.h"
#include "client/cli/terminal/job_text.h"
#include "common/rpc/error.h"
#include "common/status/status.h"
#include "common/steady/now.h"

namespace muster::cli {
namespace {

constexpr absl::Duration kRedraw = absl::Seconds(1);

double BytesPerSecond(uint64_t bytes, absl::Duration elapsed) {
  return static_cast<double>(bytes) / std::max(absl::ToDoubleSeconds(elapsed), 1e-3);
}

// A file that is being received.
class Receiving {
 public:
  Receiving(Console* console, client::MusterClient& client, const CommonOptions& options,
            const v1::Operation& operation, client::PartialFile* file)
      : console_(console),
        client_(client),
        name_(operation.name()),
        bytes_(operation.result().gathered_optimizer_state().bytes()),
        file_(file),
        listener_(&console->interrupts, [this](int) { interruption_.Cancel(); }) {
    stream_.retry_for = options.retry_for;
    stream_.cancellation = &interruption_;
  }

  // Receives until the file is complete. disk_failed() tells afterwards whether the error is one of
  // the file.
  absl::Status Receive() {
    // The bytes may be of another cluster's operation of this name, or a crash of the machine
    // damaged them.
    if (file_->bytes() > bytes_) RETURN_IF_ERROR(OfDisk(file_->Restart()));
    const bool continued = file_->bytes() > 0;
    const absl::Status received = ReceiveRest();
    if (!absl::IsDataLoss(received) || !continued) return received;
    RETURN_IF_ERROR(OfDisk(file_->Restart()));
    return ReceiveRest();
  }
  bool disk_failed() const { return disk_failed_; }
  uint64_t received() const { return file_->bytes() - begun_; }
  absl::Duration elapsed() const { return SteadyNow() - begun_at_; }

 private:
  absl::Status OfDisk(const absl::Status& status) {
    if (!status.ok()) disk_failed_ = true;
    return status;
  }

  absl::Status ReceiveRest() {
    begun_ = file_->bytes();
    begun_at_ = drawn_at_ = SteadyNow();
    const auto hash = client_.Download(name_, begun_, stream_,
                                       [this](const std::string& data) { return Take(data); });
    if (console_->err_is_terminal) console_->err << EraseLine << std::flush;
    RETURN_IF_ERROR(hash.status());
    if (file_->bytes() == bytes_ && *hash == file_->Hash()) return absl::OkStatus();
    return absl::DataLossError(
        absl::StrCat("operation '", name_, "': expected ", bytes_, " bytes with the hash ", *hash,
                     ", received ", file_->bytes(), " bytes with the hash ", file_->Hash()));
  }

  absl::Status Take(const std::string& data) {
    if (data.size() > bytes_ - file_->bytes()) {
      return absl::DataLossError(
          absl::StrCat("operation '", name_, "': expected ", bytes_, " bytes, received more"));
    }
    RETURN_IF_ERROR(OfDisk(file_->Append(data)));
    if (console_->err_is_terminal && SteadyNow() - drawn_at_ >= kRedraw) {
      drawn_at_ = SteadyNow();
      const std::string text = ReceivedText(begun_, file_->bytes(), bytes_, elapsed());
      console_->err << EraseLine << CutToColumns(text, console_->columns()) << std::flush;
    }
    return absl::OkStatus();
  }

  Console* const console_;
  client::MusterClient& client_;
  const std::string name_;
  const uint64_t bytes_;
  client::PartialFile* const file_;
  client::StreamOptions stream_;
  bool disk_failed_ = false;
  uint64_t begun_ = 0;
  absl::Time begun_at_;
  absl::Time drawn_at_;
  client::Cancellation interruption_;
  Interrupts::Listener listener_;
};

}  // namespace

DownloadTarget TargetOf(const std::string& path, bool overwrite) {
  return {.path = AbsolutePath(path),
          .existing = overwrite ? client::Existing::kReplace : client::Existing::kKeep};
}

std::string ReceivedText(uint64_t begun, uint64_t received, uint64_t all, absl::Duration elapsed) {
  const double speed = BytesPerSecond(received - begun, elapsed);
  std::string text = absl::StrFormat("received %d%% of %s, %s/s",
                                     all == 0 ? 100 : static_cast<int>(100.0 * received / all),
                                     HumanBytes(all), HumanBytes(static_cast<uint64_t>(speed)));
  if (speed > 0 && received < all) {
    absl::StrAppend(&text, ", ", HumanDuration(absl::Seconds((all - received) / speed)), " left");
  }
  return text;
}

ExitCode Download(Console* console, client::MusterClient& client, const CommonOptions& options,
                  const v1::Operation& operation, const DownloadTarget& target) {
  const std::string again = absl::StrCat(
      "the cluster keeps the file for an hour: `muster operation ", operation.name(),
      " --download ", target.path,
      target.existing == client::Existing::kReplace ? " --overwrite" : "", "` fetches it");
  auto file =
      client::PartialFile::Open(target.path, absl::StrReplaceAll(operation.name(), {{"/", "-"}}));
  if (!file.ok()) {
    return FailWith(console, absl::StrCat(Message(file.status()), "; ", again),
                    ExitCodeOf(file.status()));
  }
  Receiving receiving(console, client, options, operation, file->get());
  const absl::Status received = receiving.Receive();
  if (!received.ok()) {
    const std::string reason = ErrorReason(received);
    // The cluster has no such file, or not any more.
    const bool gone = (absl::IsNotFound(received) && !receiving.disk_failed()) ||
                      reason == "NO_DOWNLOAD" || reason == "OPERATION_FAILED";
    // A part that cannot be continued is removed.
    if (receiving.disk_failed() || gone || absl::IsDataLoss(received) ||
        absl::IsFailedPrecondition(received)) {
      (*file)->Discard();
    }
    return FailWith(console,
                    gone ? Message(received) : absl::StrCat(Message(received), "; ", again),
                    absl::IsCancelled(received) ? kInterrupted : ExitCodeOf(received));
  }
  const absl::Status published = (*file)->Publish(target.existing);
  if (!published.ok()) {
    (*file)->Discard();
    return FailWith(console, absl::StrCat(Message(published), "; ", again));
  }
  const absl::Duration elapsed = receiving.elapsed();
  // Tells the cluster that this client has the file, so that the cluster may remove its copy.
  v1::FinishDownloadRequest request;
  request.set_name(operation.name());
  const auto finished = client.Read(&v1::OperationService::Stub::FinishDownload, request);
  if (!finished.ok()) {
    console->err << "note: the cluster removes its copy within the hour ("
                 << Message(finished.status()) << ")\n";
  }
  if (!IsDocument(options.output)) {
    console->out << absl::StrFormat(
        "%s: %s, received in %.1f s (%s/s)\n", target.path, HumanBytes((*file)->bytes()),
        absl::ToDoubleSeconds(elapsed),
        HumanBytes(static_cast<uint64_t>(BytesPerSecond(receiving.received(), elapsed))));
  }
  return kDone;
}

}  // namespace muster::cli
