// Packs documents into samples: best fit decreasing (Johnson 1973), which leaves little room empty
// and cuts no document. Pure.
#ifndef MUSTER_WORKER_DATA_TOKENS_BEST_FIT_H_
#define MUSTER_WORKER_DATA_TOKENS_BEST_FIT_H_

#include <cstdint>
#include <span>
#include <vector>

namespace muster::data {

// The documents of each sample: those of sample i are documents[begins[i]] up to before
// documents[begins[i + 1]].
struct Packing {
  std::vector<int64_t> documents;
  std::vector<int64_t> begins = {0};

  int64_t samples() const { return static_cast<int64_t>(begins.size()) - 1; }
  std::span<const int64_t> Of(int64_t sample) const {
    return {documents.data() + begins[sample], documents.data() + begins[sample + 1]};
  }
};

// lengths: of each document, 1 to `room`. Takes the documents from the longest to the shortest,
// those of one length in their order. A document goes into the sample with the least free room that
// is enough. If several samples have this room, the document goes into the sample that was begun
// first; if no sample has enough room, the document begins a new sample. Samples are in the order
// in which they were begun, and the documents of a sample in the order in which they were taken.
// Time: documents x log(room).
Packing PackBestFit(std::span<const int64_t> lengths, int64_t room);

// One document in each sample.
Packing PackEach(int64_t documents);

}  // namespace muster::data

#endif  // MUSTER_WORKER_DATA_TOKENS_BEST_FIT_H_
