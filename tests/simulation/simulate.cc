// Runs simulated clusters, one per seed: `simulate --first-seed 1000 --schedules 100000`. The
// command `simulate --first-seed SEED --schedules 1 --story` prints the events of one seed. Exit
// code 1: a schedule violated an invariant.
#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdint>
#include <iostream>
#include <map>
#include <string>

#include "tests/simulation/cluster_simulation.h"

int main(int argc, char** argv) {
  using namespace muster::simulation;
  SimulationOptions options;
  uint64_t first_seed = 0;
  uint64_t schedules = 1000;
  uint64_t stop_after = 10;
  std::string faults = "hold";
  std::string planted;
  bool story = false;
  CLI::App app("Simulated clusters, one per seed.");
  app.add_option("--first-seed", first_seed);
  app.add_option("--schedules", schedules);
  app.add_option(
      "--faults", faults,
      "names with commas between them; 'hold': those under which everything holds; 'all'");
  app.add_option("--stop-after", stop_after, "end after so many schedules that went wrong");
  const std::map<std::string, muster::cluster::PlantedFault> plants = {
      {"late-persist", muster::cluster::PlantedFault::kLatePersist},
      {"unfenced-commit", muster::cluster::PlantedFault::kUnfencedCommit},
      {"lost-request-id", muster::cluster::PlantedFault::kLostRequestId},
      {"lease-without-margin", muster::cluster::PlantedFault::kLeaseWithoutMargin}};
  app.add_option("--planted", planted, "a mistake that is to be found")
      ->check(CLI::IsMember(plants));
  app.add_option("--slots", options.slots, "of each node")->check(CLI::Range(1, 1000));
  app.add_option("--ticks", options.ticks_per_lease, "of the coordinator, for each lease")
      ->check(CLI::Range(1, 1000));
  app.add_flag("--story", story, "print what happens");
  app.add_flag("--slow-clocks", options.slow_clocks,
               "agents and workers run longer than their leases");
  CLI11_PARSE(app, argc, argv);

  if (faults == "all") {
    options.faults = AllFaults();
  } else if (faults == "hold") {
    options.faults = FaultsThatHold();
  } else {
    const auto parsed = ParseFaults(faults);
    if (!parsed.ok()) {
      std::cerr << parsed.status().message() << "\n";
      return 2;
    }
    options.faults = *parsed;
  }
  if (!planted.empty()) options.planted_in_cluster = plants.at(planted);
  const auto start = std::chrono::steady_clock::now();
  uint64_t wrong = 0;
  uint64_t done = 0;
  uint64_t events = 0;
  std::map<Fault, uint64_t> happened;
  for (uint64_t seed = first_seed; seed < first_seed + schedules && wrong < stop_after;
       ++seed, ++done) {
    std::string text;
    options.seed = seed;
    options.story = story ? &text : nullptr;
    const SimulationResult result = Simulate(options);
    std::cout << text;
    events += result.events;
    for (const auto& [fault, times] : result.happened) happened[fault] += times;
    if (result.wrong.empty()) continue;
    ++wrong;
    std::cout << "seed " << seed << ": " << result.wrong << std::endl;
  }
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  std::cout << done << " schedules from seed " << first_seed << ", " << wrong << " went wrong; "
            << events << " events, " << static_cast<double>(done) / seconds
            << " schedules a second; faults:";
  for (const auto& [fault, times] : happened) std::cout << " " << Name(fault) << " " << times;
  std::cout << std::endl;
  return wrong == 0 ? 0 : 1;
}
