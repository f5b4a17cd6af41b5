#include <sys/stat.h>

#include "client/cli/command.h"
#include "client/cli/commands.h"
#include "client/cli/terminal/job_text.h"
#include "client/files/partial_file.h"
#include "common/status/status.h"

namespace muster::cli {
namespace {

struct BackupOptions : CommonOptions {
  std::string file;
};

// Writes the backup. The file gets its name only when it is completely on the disk. Only its owner
// may read it, because it contains every job file.
absl::Status Write(client::MusterClient* client, const std::string& path, uint64_t* bytes) {
  const mode_t before = umask(0077);
  auto file = client::StagedFile::Create(path);
  umask(before);
  RETURN_IF_ERROR(file.status());
  absl::Status written;
  RETURN_IF_ERROR(
      client->ReadStream(&v1::ClusterService::Stub::Backup, {}, {.retry_for = absl::ZeroDuration()},
                         absl::InfiniteFuture(), [&](const v1::BackupChunk& chunk) {
                           *bytes += chunk.data().size();
                           written = (*file)->Append(chunk.data().data(), chunk.data().size());
                           return written.ok();
                         }));
  RETURN_IF_ERROR(written);
  RETURN_IF_ERROR((*file)->MakeDurable());
  return (*file)->Publish();
}

absl::StatusOr<ExitCode> Backup(Console* console, client::MusterClient& client,
                                const BackupOptions& options) {
  uint64_t bytes = 0;
  RETURN_IF_ERROR(Write(&client, options.file, &bytes));
  console->err << "wrote " << options.file << ", " << HumanBytes(bytes)
               << "; docs/internals/store.md says how to restore it\n";
  return kDone;
}

}  // namespace

void AddBackup(CLI::App* app, Console* console, ExitCode* code) {
  auto options = std::make_shared<BackupOptions>();
  CLI::App* command = app->add_subcommand(
      "backup", "Copy the coordinator's database to a file, while the coordinator works");
  command->add_option("FILE", options->file, "The file to write; an existing file is replaced")
      ->required();
  AddCommonOptions(command, console, options.get());
  command->callback([=] { *code = Call(console, *options, Backup); });
}

}  // namespace muster::cli
