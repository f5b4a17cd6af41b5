// How large a job may be. This is checked before everything else that is done with a job, so that
// nothing whose cost grows with the size sees a job that is too large.
#ifndef MUSTER_COMMON_JOBSPEC_SIZES_H_
#define MUSTER_COMMON_JOBSPEC_SIZES_H_

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <cstddef>
#include <optional>

#include "common/jobspec/problem_list.h"

namespace muster::jobspec {

// Of an encoded JobSpec.
inline constexpr size_t kMostSpecBytes = size_t{1} << 20;
// Of a list of numbers; of a list of mappings; of a mapping whose keys are free.
inline constexpr int kMostElements = 4096;
// Of a list of texts: a file of its own for each rank.
inline constexpr int kMostTexts = 65536;
// In bytes, unless the field's rule has another limit: the longest path of Linux.
inline constexpr size_t kLongestText = 4095;
// Of a glob pattern, in bytes.
inline constexpr size_t kLongestPattern = 500;

// The longest text of a field that holds one text or several, or a map's keys and values; in bytes.
size_t LongestText(const google::protobuf::FieldDescriptor& field);
// How many elements a list or a map may have. Absent for lists that a job file writes in place of
// their message (FieldRule.bare): only the size of the job limits these.
std::optional<int> MostElements(const google::protobuf::FieldDescriptor& field);

// Adds a problem for each list with too many elements and each text that is too long, or only one
// problem if the whole job has more than kMostSpecBytes. Reads no element of a list of numbers.
// Pure.
void CheckSizes(const google::protobuf::Message& spec, ProblemList* problems);

}  // namespace muster::jobspec

#endif  // MUSTER_COMMON_JOBSPEC_SIZES_H_
