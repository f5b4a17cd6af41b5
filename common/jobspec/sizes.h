// The largest sizes of a job. They are checked first, so that no code whose cost grows with the
// size gets a job that is too large.
#ifndef MUSTER_COMMON_JOBSPEC_SIZES_H_
#define MUSTER_COMMON_JOBSPEC_SIZES_H_

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <cstddef>
#include <optional>

#include "common/jobspec/problem_list.h"

namespace muster::jobspec {

// The size of an encoded JobSpec.
inline constexpr size_t kMostSpecBytes = size_t{1} << 20;
// The elements of a list of numbers, of a list of mappings, or of a mapping whose keys are free.
inline constexpr int kMostElements = 4096;
// The elements of a list of texts: enough for a separate file for each rank.
inline constexpr int kMostTexts = 65536;
// The bytes of a text, unless the field's rule has another limit: the longest path of Linux.
inline constexpr size_t kLongestText = 4095;
// The bytes of a glob pattern.
inline constexpr size_t kLongestPattern = 500;

// The longest text, in bytes, of a field with one text or several, or of a map's keys and values.
size_t LongestText(const google::protobuf::FieldDescriptor& field);
// The largest number of elements of a list or a map. Absent for lists that a job file writes in
// place of their message (FieldRule.bare): only the size of the job limits these.
std::optional<int> MostElements(const google::protobuf::FieldDescriptor& field);

// Adds a problem for each list with too many elements and each text that is too long. Adds only one
// problem if the whole job has more than kMostSpecBytes. Reads no element of a list of numbers.
// Pure.
void CheckSizes(const google::protobuf::Message& spec, ProblemList* problems);

}  // namespace muster::jobspec

#endif  // MUSTER_COMMON_JOBSPEC_SIZES_H_
