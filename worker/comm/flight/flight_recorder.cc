#include "worker/comm/flight/flight_recorder.h"

#include <xxhash.h>

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace muster::comm {

uint64_t FlightRecorder::Begin(size_t channel, const char* operation, OpLabel label) {
  const size_t length = strlen(label.what);
  absl::MutexLock lock(&mutex_);
  uint64_t& hash = hashes_[channel];
  hash = XXH3_64bits_withSeed(operation, strlen(operation), hash);
  hash = XXH3_64bits_withSeed(label.what, length, hash);
  hash = XXH3_64bits_withSeed(&label.step, sizeof(label.step), hash);
  Entry& entry = entries_[++begun_ % kKept];
  entry.number = begun_;
  entry.channel = channel;
  entry.of_channel = ++begun_of_[channel];
  entry.operation = operation;
  const size_t kept = std::min(length, kLabelBytes - 1);
  std::copy_n(label.what, kept, entry.what.begin());
  entry.what[kept] = '\0';
  entry.step = label.step;
  entry.ended = false;
  return begun_;
}

void FlightRecorder::End(uint64_t number) {
  absl::MutexLock lock(&mutex_);
  ++ended_;
  Entry& entry = entries_[number % kKept];
  if (entry.number == number) entry.ended = true;
}

FlightRecorder::Flight FlightRecorder::Read() const {
  std::array<Entry, kKept> entries;
  Flight flight;
  {
    absl::MutexLock lock(&mutex_);
    flight.begun = begun_;
    flight.ended = ended_;
    entries = entries_;
  }
  const uint64_t kept = std::min<uint64_t>(flight.begun, kKept);
  for (uint64_t number = flight.begun - kept + 1; number <= flight.begun; ++number) {
    const Entry& entry = entries[number % kKept];
    flight.newest.push_back(
        {number, entry.channel, entry.of_channel,
         absl::StrCat(entry.operation, " '", entry.what.data(), "' step ", entry.step),
         entry.ended});
  }
  return flight;
}

FlightRecorder::Digest FlightRecorder::digest() const {
  absl::MutexLock lock(&mutex_);
  Digest digest{.begun = begun_ - begun_of_[kBackground]};
  for (size_t channel = 0; channel < kChannels; ++channel) {
    if (channel == kBackground) continue;
    const uint64_t hash = hashes_[channel];
    digest.hash = XXH3_64bits_withSeed(&hash, sizeof(hash), digest.hash);
  }
  return digest;
}

}  // namespace muster::comm
