// The numbered command log of one job: durable, delivered in order, acknowledged with the step at
// which a command took effect. A repeat is recognised by its number. Pure.
#ifndef MUSTER_COORDINATOR_COMMANDS_COMMAND_LOG_H_
#define MUSTER_COORDINATOR_COMMANDS_COMMAND_LOG_H_

#include <cstdint>
#include <optional>
#include <vector>

namespace muster::commands {

// Values are stored: never renumbered.
enum class Kind { kStop = 1 };

struct Command {
  // From 1, without gaps.
  uint64_t number = 0;
  Kind kind = Kind::kStop;
  // Optimizer steps done when it took effect; absent until a worker says so.
  std::optional<uint64_t> applied_step;

  bool operator==(const Command&) const = default;
};

class CommandLog {
 public:
  CommandLog() = default;
  // From the store, in order of their numbers.
  explicit CommandLog(std::vector<Command> commands) : commands_(std::move(commands)) {}

  // The new command's number.
  uint64_t Append(Kind kind);
  // What a worker that holds all up to `newest` has yet to get.
  std::vector<Command> After(uint64_t newest) const;
  // False when the number is not known, or its acknowledgement is (the first one stands).
  bool Applied(uint64_t number, uint64_t step);

  const std::vector<Command>& commands() const { return commands_; }

 private:
  std::vector<Command> commands_;
};

}  // namespace muster::commands

#endif  // MUSTER_COORDINATOR_COMMANDS_COMMAND_LOG_H_
