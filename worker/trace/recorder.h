// A recorder of a rank's actions and their times, which show where time is spent: phases of steps,
// units, collectives.
//
// Threading: one thread. Cost while the recorder is off: a test of a flag.
#ifndef MUSTER_WORKER_TRACE_RECORDER_H_
#define MUSTER_WORKER_TRACE_RECORDER_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace muster::trace {

// The line of the trace to which an event belongs.
enum class Lane { kSteps, kUnits, kCollectives };

struct Event {
  enum class Kind {
    kSpan,   // from begin to end; spans of a lane nest, but collectives overlap
    kMark,   // at begin
    kLevel,  // from begin on there are `bytes` bytes
  };
  Kind kind = Kind::kMark;
  Lane lane = Lane::kSteps;
  std::string name;
  // The time in nanoseconds since the epoch, by the machine's clock, so that events of ranks on one
  // machine can be compared.
  int64_t begin = 0;
  int64_t end = 0;
  int64_t bytes = -1;  // -1: there is no number of bytes
};

class Recorder {
 public:
  static int64_t Now();

  bool on() const { return on_; }
  void Start() { on_ = true; }
  // Returns the events since Start, ordered by their ends.
  std::vector<Event> Stop();

  // Records an event; does nothing while the recorder is off. A span ends now.
  void Span(Lane lane, std::string name, int64_t begin, int64_t bytes = -1);
  void Mark(Lane lane, std::string name);
  void Level(std::string name, int64_t bytes);

 private:
  bool on_ = false;
  std::vector<Event> events_;
};

// A phase of a step, as long as this object lives. recorder: may be null.
class Phase {
 public:
  Phase(Recorder* recorder, const char* name)
      : recorder_(recorder != nullptr && recorder->on() ? recorder : nullptr),
        name_(name),
        begin_(recorder_ != nullptr ? Recorder::Now() : 0) {}
  ~Phase() {
    if (recorder_ != nullptr) recorder_->Span(Lane::kSteps, name_, begin_);
  }
  Phase(const Phase&) = delete;
  Phase& operator=(const Phase&) = delete;

 private:
  Recorder* const recorder_;
  const char* const name_;
  const int64_t begin_;
};

}  // namespace muster::trace

#endif  // MUSTER_WORKER_TRACE_RECORDER_H_
