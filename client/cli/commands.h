// The commands of `muster`. Each function adds a command to the application. A chosen command runs
// and stores its exit code in *code. `console` and `code` must outlive the application.
#ifndef MUSTER_CLIENT_CLI_COMMANDS_H_
#define MUSTER_CLIENT_CLI_COMMANDS_H_

#include <CLI/CLI.hpp>

#include "client/cli/terminal/console.h"
#include "client/cli/terminal/exit_code.h"

namespace muster::cli {

void AddRun(CLI::App* app, Console* console, ExitCode* code);
void AddSubmit(CLI::App* app, Console* console, ExitCode* code);
void AddValidate(CLI::App* app, Console* console, ExitCode* code);
void AddNodes(CLI::App* app, Console* console, ExitCode* code);
void AddDrain(CLI::App* app, Console* console, ExitCode* code);
void AddCordon(CLI::App* app, Console* console, ExitCode* code);
void AddUncordon(CLI::App* app, Console* console, ExitCode* code);
void AddBackup(CLI::App* app, Console* console, ExitCode* code);
void AddList(CLI::App* app, Console* console, ExitCode* code);
void AddGet(CLI::App* app, Console* console, ExitCode* code);
void AddRanks(CLI::App* app, Console* console, ExitCode* code);
void AddWatch(CLI::App* app, Console* console, ExitCode* code);
void AddLogs(CLI::App* app, Console* console, ExitCode* code);
void AddWait(CLI::App* app, Console* console, ExitCode* code);
void AddStop(CLI::App* app, Console* console, ExitCode* code);
void AddPause(CLI::App* app, Console* console, ExitCode* code);
void AddResume(CLI::App* app, Console* console, ExitCode* code);
void AddRetry(CLI::App* app, Console* console, ExitCode* code);
void AddFreeze(CLI::App* app, Console* console, ExitCode* code);
void AddUnfreeze(CLI::App* app, Console* console, ExitCode* code);
void AddRefresh(CLI::App* app, Console* console, ExitCode* code);
void AddTrainability(CLI::App* app, Console* console, ExitCode* code);
void AddCheckpoint(CLI::App* app, Console* console, ExitCode* code);
void AddGatherOptimizerState(CLI::App* app, Console* console, ExitCode* code);
void AddConsolidate(CLI::App* app, Console* console, ExitCode* code);
void AddStage(CLI::App* app, Console* console, ExitCode* code);
void AddSample(CLI::App* app, Console* console, ExitCode* code);
// Commands with one value that change how a running job trains: set-lr, skip-data (steer.cc).
void AddSettings(CLI::App* app, Console* console, ExitCode* code);
void AddOperations(CLI::App* app, Console* console, ExitCode* code);
void AddOperation(CLI::App* app, Console* console, ExitCode* code);
void AddDelete(CLI::App* app, Console* console, ExitCode* code);
void AddMetrics(CLI::App* app, Console* console, ExitCode* code);
void AddCheckpoints(CLI::App* app, Console* console, ExitCode* code);
void AddCerts(CLI::App* app, Console* console, ExitCode* code);
void AddData(CLI::App* app, Console* console, ExitCode* code);
void AddExport(CLI::App* app, Console* console, ExitCode* code);
void AddNewJob(CLI::App* app, Console* console, ExitCode* code);

}  // namespace muster::cli

#endif  // MUSTER_CLIENT_CLI_COMMANDS_H_
