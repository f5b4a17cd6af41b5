#include <memory>
#include <string>

#include "client/cli/commands.h"
#include "client/cli/steer.h"

namespace muster::cli {

void AddStage(CLI::App* app, Console* console, ExitCode* code) {
  auto options = std::make_shared<SteeringOptions>();
  auto stage = std::make_shared<std::string>();
  CLI::App* command = app->add_subcommand(
      "stage",
      "Evaluate the model of a running or paused job after its current step, without effect on its "
      "training; with --wait the metrics are shown, and `muster metrics JOB` has them in any case");
  AddSteeringOptions(command, console, options.get());
  command
      ->add_option("STAGE", *stage,
                   "validate, over data.validate of the job file, or test, over data.test")
      ->required();
  command->callback([=] {
    v1::RunStageRequest request;
    request.set_stage(*stage);
    *code = Steer(console, *options, &v1::ControlService::Stub::RunStage, request);
  });
}

}  // namespace muster::cli
