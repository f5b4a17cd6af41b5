#include "worker/trace/chrome_trace.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace muster::trace {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kLanes[] = {"steps", "units", "collectives"};

double Microseconds(int64_t nanoseconds) { return static_cast<double>(nanoseconds) / 1000; }

class Part {
 public:
  explicit Part(int64_t rank) : rank_(rank) {
    Add({{"ph", "M"}, {"name", "process_name"}, {"args", {{"name", absl::StrCat("rank ", rank)}}}});
    for (size_t lane = 0; lane < std::size(kLanes); ++lane) {
      Add({{"ph", "M"},
           {"name", "thread_name"},
           {"tid", lane},
           {"args", {{"name", kLanes[lane]}}}});
    }
  }

  void Add(Json event) {
    event["pid"] = rank_;
    // Invalid UTF-8 in names is replaced, because names may contain anything that a model calls its
    // units.
    texts_.push_back(event.dump(-1, ' ', false, Json::error_handler_t::replace));
  }

  void Add(const Event& event) {
    Json json = {{"name", event.name},
                 {"cat", kLanes[static_cast<int>(event.lane)]},
                 {"tid", static_cast<int>(event.lane)},
                 {"ts", Microseconds(event.begin)}};
    if (event.bytes >= 0) json["args"] = {{"bytes", event.bytes}};
    if (event.kind == Event::Kind::kLevel) {
      json["ph"] = "C";
    } else if (event.kind == Event::Kind::kMark) {
      json["ph"] = "i";
      json["s"] = "t";
    } else if (event.lane == Lane::kCollectives) {
      json["id"] = next_id_++;
      json["ph"] = "b";
      Add(json);
      json["ph"] = "e";
      json["ts"] = Microseconds(event.end);
    } else {
      json["ph"] = "X";
      json["dur"] = Microseconds(event.end - event.begin);
    }
    Add(std::move(json));
  }

  std::string Text() const { return absl::StrJoin(texts_, ",\n"); }

 private:
  const int64_t rank_;
  int64_t next_id_ = 0;
  std::vector<std::string> texts_;
};

}  // namespace

std::string ChromeEvents(int64_t rank, const std::vector<Event>& events) {
  Part part(rank);
  for (const Event& event : events) part.Add(event);
  return part.Text();
}

std::string ChromeTrace(const std::vector<std::string>& parts) {
  return absl::StrCat("{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n",
                      absl::StrJoin(parts, ",\n"), "\n]}\n");
}

}  // namespace muster::trace
