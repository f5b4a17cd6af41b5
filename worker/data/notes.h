// Notes for people on the files of a data set that can be read in spite of them.
#ifndef MUSTER_WORKER_DATA_NOTES_H_
#define MUSTER_WORKER_DATA_NOTES_H_

#include <string>
#include <utility>
#include <vector>

namespace muster::data {

struct Note {
  enum class Kind {
    kCast,      // numbers of another type or order, which are converted
    kDoubt,     // the bytes look like something else than what the job says
    kArranged,  // how samples are made of the files
  };
  Kind kind = Kind::kCast;
  std::string text;

  friend bool operator==(const Note&, const Note&) = default;
};

// Collects the notes of several files. A note that is true of many files appears once. Threading:
// one thread.
class Notes {
 public:
  void Add(Note::Kind kind, const std::string& text, const std::string& path) {
    for (auto& [note, paths] : notes_) {
      if (note == Note{kind, text}) return paths.push_back(path);
    }
    notes_.push_back({{kind, text}, {path}});
  }

  // Returns the notes: "a.npy and 2 more: inputs: float64 is read as float32".
  std::vector<Note> All() const {
    std::vector<Note> all;
    for (const auto& [note, paths] : notes_) {
      std::string where = paths.front();
      if (paths.size() > 1) where += " and " + std::to_string(paths.size() - 1) + " more";
      all.push_back({note.kind, where + ": " + note.text});
    }
    return all;
  }

 private:
  std::vector<std::pair<Note, std::vector<std::string>>> notes_;
};

}  // namespace muster::data

#endif  // MUSTER_WORKER_DATA_NOTES_H_
