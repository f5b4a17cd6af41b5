// `muster version`. Needs no coordinator.
#include <memory>
#include <nlohmann/json.hpp>

#include "client/cli/command.h"
#include "client/cli/commands.h"
#include "common/version/version.h"

namespace muster::cli {

void AddVersion(CLI::App* app, Console* console, ExitCode* code) {
  const auto options = std::make_shared<CommonOptions>();
  CLI::App* command = app->add_subcommand("version", "Show the version of this program");
  AddOutputOption(command, options.get());
  command->callback([=] {
    if (IsDocument(options->output)) {
      const nlohmann::ordered_json json = {{"version", Version()}};
      console->out << Document(json.dump(2) + "\n", options->output);
    } else {
      console->out << "muster " << Version() << "\n";
    }
    *code = kDone;
  });
}

}  // namespace muster::cli
